import { pino } from "pino";
import { Cacher } from "../../src/cacher/cacher.ts";
import type { CacherOptions } from "../../src/cacher/options.ts";
import type { WatchEvent } from "../../src/model/event.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import { MemoryWatch } from "../../src/storage/memory/memory-watch.ts";
import type { WatchStream } from "../../src/storage/storage.ts";
import { FakeClock } from "../fake-clock.ts";

export const silent = pino({ level: "silent" });

/** A Cacher over an embedded store. The default clock advances only when the test advances it. */
export class CachedStore {
  readonly clock: FakeClock;
  readonly store: MemoryStorage;
  readonly cacher: Cacher;
  /** The watches opened on the store, which a test may break. */
  readonly upstream: MemoryWatch[] = [];

  constructor(options: Partial<CacherOptions> = {}, clock: FakeClock = new FakeClock()) {
    this.clock = clock;
    this.store = new MemoryStorage({ clock: this.clock });
    const watch = this.store.watch.bind(this.store);
    this.store.watch = (request) => {
      const stream = watch(request);
      if (stream instanceof MemoryWatch) this.upstream.push(stream);
      return stream;
    };
    this.cacher = new Cacher({
      storage: this.store,
      clock: this.clock,
      logger: silent,
      name: "things",
      random: () => 0.5,
      ...options,
    });
  }

  /** Returns a started Cacher that is synced with the store. */
  static async ready(options?: Partial<CacherOptions>, clock?: FakeClock): Promise<CachedStore> {
    const cached = new CachedStore(options, clock);
    cached.cacher.start();
    await cached.clock.elapse(200);
    return cached;
  }

  /** Writes to the store directly, in one transaction, and waits until all effects have settled. */
  async write(
    ...entries: readonly (readonly [key: string, value: string | null])[]
  ): Promise<number> {
    const revision = await this.store.txn(
      entries.map(([key, value]) =>
        value === null
          ? { type: "delete" as const, key }
          : { type: "put" as const, key, value: Buffer.from(value) },
      ),
    );
    await this.clock.settle();
    return revision;
  }
}

/** Reads one batch, as text: `"ADDED:a=1@2 →7"`, with `…` for an atomic batch that continues. */
export function read(stream: WatchStream): string | undefined {
  const batch = stream.read();
  if (batch === undefined) return undefined;
  const events = batch.events.map(short);
  const point = batch.revision === undefined ? "…" : `→${batch.revision}`;
  return [...events, batch.initialEventsEnd ? "complete" : "", point].filter(Boolean).join(" ");
}

/** Reads all batches that are available. */
export function readAll(stream: WatchStream): string[] {
  const all: string[] = [];
  for (let batch = read(stream); batch !== undefined; batch = read(stream)) all.push(batch);
  return all;
}

function short(event: WatchEvent): string {
  const { key, value, modRevision } = event.object;
  const before =
    event.previous === undefined ? "" : `(${Buffer.from(event.previous.value).toString()})`;
  return `${event.type}:${key}=${Buffer.from(value).toString()}${before}@${modRevision}`;
}
