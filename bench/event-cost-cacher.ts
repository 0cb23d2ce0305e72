/**
 * One variant of event-cost in its own process: a Cacher over the embedded store, watchers that do not match the
 * events, and one reader that does. Started by event-cost.ts, which sends it messages by IPC.
 */
import { pino } from "pino";
import { systemClock } from "../src/base/clock.ts";
import { Cacher } from "../src/cacher/cacher.ts";
import type { CacheWatchRequest } from "../src/cacher/request/request.ts";
import type { CacheWatcher } from "../src/cacher/watch/cache-watcher.ts";
import { AttributeReader } from "../src/codec/attribute-reader.ts";
import { JsonCodec } from "../src/codec/json-codec.ts";
import { MemoryStorage } from "../src/storage/memory/memory-storage.ts";
import { answerParent } from "./child.ts";

/** The first message of the parent. */
export interface Variant {
  /** The scope of the watchers: one key, or one value of a field. */
  readonly by: "key" | "field";
  readonly indexed: boolean;
  /** Number of watchers of other keys or values. */
  readonly others: number;
}

export interface Round {
  readonly events: number;
  /** Number of writes before the resulting events are awaited. */
  readonly burst: number;
}

const keyCount = 1_000;
const field = "spec.node";
const logger = pino({ enabled: false });

class Bed {
  readonly #storage = new MemoryStorage({ clock: systemClock });
  readonly #variant: Variant;
  readonly #cacher: Cacher;
  readonly #keys = Array.from({ length: keyCount }, (_, i) => `written/${i}`);
  readonly #value = valueOn("node-0");
  #written = 0;
  #delivered = 0;
  #arrived = (): void => {};

  constructor(variant: Variant) {
    this.#variant = variant;
    const codec = new JsonCodec({ fields: [field] });
    const byField = variant.by === "field";
    this.#cacher = new Cacher({
      storage: this.#storage,
      clock: systemClock,
      logger,
      name: "bench",
      attributes: byField ? new AttributeReader(codec, systemClock, logger) : undefined,
      indexes: variant.indexed ? [field] : [],
    });
  }

  async open(): Promise<void> {
    const ready = new Promise<void>((resolve) => this.#cacher.onReadyChange(() => resolve()));
    this.#cacher.start();
    await ready;
    const byField = this.#variant.by === "field";
    const reader = this.#cacher.watch(byField ? this.#on("node-0") : scoped({ prefix: "" }));
    follow(reader, (events) => {
      this.#delivered += events;
      if (this.#delivered === this.#written) this.#arrived();
    });
    for (let i = 1; i <= this.#variant.others; i++) {
      const request = byField ? this.#on(`node-${i}`) : scoped({ key: `other/${i}` });
      follow(this.#cacher.watch(request), () => {
        throw new Error("A watcher received an event that does not match it.");
      });
    }
    // Until all watchers are live.
    while (this.#cacher.stats().watchers.live <= this.#variant.others) await immediate();
  }

  /** CPU per event, of all threads of this process, in microseconds. */
  async run({ events, burst }: Round): Promise<number> {
    const before = process.cpuUsage();
    for (let done = 0; done < events; done += burst) {
      const arrived = new Promise<void>((resolve) => {
        this.#arrived = resolve;
      });
      this.#written += burst;
      for (let i = 0; i < burst; i++) {
        const key = this.#keys[(done + i) % keyCount] ?? "";
        void this.#storage.put({ key, value: this.#value });
      }
      await arrived;
    }
    const { user, system } = process.cpuUsage(before);
    return (user + system) / events;
  }

  #on(node: string): CacheWatchRequest {
    return { ...scoped({ prefix: "" }), selection: this.#cacher.select("", `${field}=${node}`) };
  }
}

function scoped(scope: CacheWatchRequest["scope"]): CacheWatchRequest {
  return { scope, afterRevision: undefined, withPrevious: false };
}

function follow(watcher: CacheWatcher, onEvents: (count: number) => void): void {
  const read = (): void => {
    for (let batch = watcher.read(); batch !== undefined; batch = watcher.read()) {
      if (batch.events.length > 0) onEvents(batch.events.length);
    }
    if (watcher.ended instanceof Error) throw watcher.ended;
  };
  watcher.onReadable(read);
  read();
}

function valueOn(node: string): Uint8Array {
  const text = JSON.stringify({ metadata: { labels: {} }, spec: { node, filler: "" } });
  const filled = text.replace('""', `"${"x".repeat(256 - text.length)}"`);
  return new TextEncoder().encode(filled);
}

function immediate(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

let bed: Bed | undefined;

answerParent<Variant | Round>(async (question) => {
  if ("events" in question) return bed?.run(question);
  bed = new Bed(question);
  await bed.open();
  return undefined;
});
