import { pino } from "pino";
import { systemClock } from "../../../src/base/clock.ts";
import { hasReason } from "../../../src/base/errors.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";

/** What a store is filled with, and how. */
export interface FillOptions {
  readonly valueBytes: number;
  /** Default 20. */
  readonly keyChars?: number;
  readonly ttlSeconds?: number;
  /** Number of times that every object is written again after the store is full. Default 0. */
  readonly rounds?: number;
  /** Whether to write through a Cacher in front of it. */
  readonly cached?: boolean;
}

/** As a process of its own: fills a store with the default bounds, and prints the result. */
async function main(options: FillOptions): Promise<void> {
  const { valueBytes, keyChars = 20, ttlSeconds, rounds = 0, cached = false } = options;
  const clock = systemClock;
  const storage = new MemoryStorage({ clock });
  const cacher = new Cacher({ storage, clock, logger: pino({ level: "silent" }), name: "filled" });
  if (cached) cacher.start();
  while (cached && !cacher.ready) await nextTurn();
  const target = cached ? cacher : storage;
  const keyOf = (i: number): string => `${i}`.padStart(keyChars, "k");
  const value = new Uint8Array(valueBytes);
  let objects = 0;
  let reason = "";
  while (reason === "") {
    try {
      await target.put({ key: keyOf(objects), value, ttlSeconds });
      objects++;
      if (objects % 1_000 === 0) await nextTurn();
    } catch (error) {
      if (!hasReason(error, "STORAGE_FULL")) throw error;
      reason = error.reason;
    }
  }
  for (let round = 0; round < rounds; round++) {
    for (let i = 0; i < objects; i++) await target.put({ key: keyOf(i), value, ttlSeconds });
  }
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  process.stdout.write(JSON.stringify({ reason, objects, heapUsed, arrayBuffers }));
  process.exit(0);
}

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

if (process.argv[1] === import.meta.filename) {
  await main(JSON.parse(process.argv[2] ?? "{}") as FillOptions);
}
