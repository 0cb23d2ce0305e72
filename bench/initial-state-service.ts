/**
 * A service in its own process: the gRPC server over a Cacher over the embedded store. Started by initial-state.ts
 * and pages.ts, which send it messages by IPC. Needs `--expose-gc`.
 */
import { randomFillSync } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { Cacher } from "../src/cacher/cacher.ts";
import { AttributeReader } from "../src/codec/attribute-reader.ts";
import { JsonCodec } from "../src/codec/json-codec.ts";
import { startServer } from "../src/server/server.ts";
import { MemoryStorage } from "../src/storage/memory/memory-storage.ts";
import { answerParent } from "./child.ts";

/** The messages of the parent. */
export type ServiceQuestion =
  | { readonly do: "fill"; readonly objects: number; readonly json: boolean }
  /** Collects garbage, resets the peak, and reports the retained bytes. */
  | { readonly do: "settle" }
  | { readonly do: "look" }
  /** Writes this many single objects per second until "stop writing". */
  | { readonly do: "write"; readonly perSecond: number }
  | { readonly do: "stop writing" }
  /** Writes one object, so that later clients need a newer state than earlier ones. */
  | { readonly do: "touch" };

/** The memory and CPU of the service, in bytes and microseconds. */
export interface ServiceState {
  readonly port: number;
  /** Live memory; exact only after a collection. */
  readonly held: number;
  readonly resident: number;
  /** The peak of `resident` since the last `settle`. */
  readonly peakResident: number;
  readonly cpuMicros: number;
  readonly revision: number;
}

const valueBytes = 256;
const perTransaction = 2_000;
const writeEveryMs = 10;

const storage = new MemoryStorage({ clock: systemClock });
const logger = pino({ enabled: false });
let keys = 0;
let json = false;
let port = 0;
let writing: NodeJS.Timeout | undefined;

answerParent<ServiceQuestion>(async (question) => {
  if (question.do === "fill") {
    json = question.json;
    await fill(question.objects);
  } else if (question.do === "write") {
    write(question.perSecond);
  } else if (question.do === "stop writing") {
    clearInterval(writing);
  } else if (question.do === "touch") {
    await storage.put({ key: keyOf(0), value: newValue() });
  } else if (question.do === "settle") {
    collect();
    // Of proc(5): resets the peak of the resident set.
    writeFileSync("/proc/self/clear_refs", "5");
  }
  return state();
});

async function fill(objects: number): Promise<void> {
  keys = objects;
  for (let from = 0; from < objects; from += perTransaction) {
    const count = Math.min(perTransaction, objects - from);
    await storage.txn(
      Array.from({ length: count }, (_, i) => ({
        type: "put",
        key: keyOf(from + i),
        value: newValue(),
      })),
    );
  }
  // The garbage of filling the cache must not be measured.
  await storage.compact(await storage.currentRevision());
  const codec = new JsonCodec();
  const cacher = new Cacher({
    storage,
    clock: systemClock,
    logger,
    name: "bench",
    attributes: json ? new AttributeReader(codec, systemClock, logger) : undefined,
    consistencyIntervalMs: 0,
  });
  const ready = new Promise<void>((resolve) => cacher.onReadyChange(() => resolve()));
  cacher.start();
  await ready;
  const server = await startServer({
    resources: new Map([["bench", cacher]]),
    listen: { host: "127.0.0.1", port: 0 },
    clock: systemClock,
    logger,
  });
  port = server.port;
}

function write(perSecond: number): void {
  const atOnce = Math.ceil((perSecond * writeEveryMs) / 1_000);
  let next = 0;
  writing = setInterval(() => {
    for (let i = 0; i < atOnce; i++) {
      // Spread over all keys, in an order that does not favour a tree.
      next = (next + 611_953) % keys;
      void storage.put({ key: keyOf(next), value: newValue() });
    }
  }, writeEveryMs);
}

async function state(): Promise<ServiceState> {
  const { heapUsed, external } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  const status = readFileSync("/proc/self/status", "utf8");
  return {
    port,
    held: heapUsed + external,
    resident: kilobytes(status, "VmRSS"),
    peakResident: kilobytes(status, "VmHWM"),
    cpuMicros: user + system,
    revision: await storage.currentRevision(),
  };
}

function kilobytes(status: string, name: string): number {
  return Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) * 1024;
}

function collect(): void {
  // The second collection frees what the first one found unreachable.
  for (let i = 0; i < 2; i++) globalThis.gc?.();
}

function keyOf(i: number): string {
  return `objects/${String(i).padStart(8, "0")}`;
}

/** Not from the pool of small buffers: each object has its own buffer. */
function newValue(): Buffer {
  const value = Buffer.allocUnsafeSlow(valueBytes);
  if (!json) return randomFillSync(value);
  const text = '{"metadata":{"labels":{"app":"bench"}},"data":""}';
  value.write(text.replace('""', `"${"x".repeat(valueBytes - text.length)}"`));
  return value;
}
