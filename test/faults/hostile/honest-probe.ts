import { setTimeout as delay } from "node:timers/promises";
import type { BareCall } from "../../foreign/bare-grpc.ts";
import { Connection, deliveredBy, type Thing } from "../wire.ts";

/** Measures of an honest client: its calls, and the time from a write to its delivery on its watch. */
export const measures = ["delivery", "get", "list"] as const;
export type Measure = (typeof measures)[number];

/** One latency of an honest client. */
export interface Sample {
  /** When the call began, in milliseconds since the epoch. */
  readonly at: number;
  /** How long it took, in milliseconds. */
  readonly ms: number;
}

/** All samples of an honest client, in the order in which they ended. */
export type Latencies = Readonly<Record<Measure, readonly Sample[]>>;

/** An honest client's measurements of one phase. */
export interface Probed {
  readonly latencies: Latencies;
  /** Violations, in sentences: a failed call, or a watch that began in the past. */
  readonly wrong: readonly string[];
}

/** Which key it writes. No recorded client writes it. */
const key = "probe";
/** RevisionMatch: what the cache holds now, and as new as any write before. */
const match = { linearizable: 1, any: 2 } as const;
/** How long a write may take to come back, in milliseconds. */
const deliveryLimitMs = 8_000;

/**
 * An honest client at one replica that measures how it is served: in each round it writes an object and waits until
 * its watch delivers that, gets an object and lists all. Its rate of writes does not depend on other clients.
 */
export class HonestProbe {
  readonly #url: string;
  readonly #intervalMs: number;
  readonly #roundsPerBeginning: number;
  readonly #latencies: Record<Measure, Sample[]> = { delivery: [], get: [], list: [] };
  readonly #wrong: string[] = [];
  readonly #stop = new AbortController();
  #connection: Connection;
  #running: Promise<void> | undefined;
  #rounds = 0;
  /** The newest revision delivered on any of its streams. */
  #delivered = 0;
  #onDelivered: ((revision: number) => void) | undefined;

  /**
   * `url` is http://HOST:PORT; a round begins every `intervalMs`, or when the one before is done. `roundsPerBeginning`:
   * how many rounds there are for each look at what a watch begins with.
   */
  constructor(url: string, intervalMs: number, roundsPerBeginning: number = 10) {
    this.#url = url;
    this.#intervalMs = intervalMs;
    this.#roundsPerBeginning = roundsPerBeginning;
    this.#connection = new Connection(url);
  }

  start(): void {
    this.#running = this.#run();
  }

  /** How many rounds it has done. */
  get rounds(): number {
    return this.#rounds;
  }

  /** Ends it, and says what was seen. */
  async stop(): Promise<Probed> {
    this.#stop.abort();
    await this.#running;
    this.#connection.close();
    return { latencies: this.#latencies, wrong: this.#wrong };
  }

  async #run(): Promise<void> {
    const watch = this.#connection.watch({ key }, { afterRevision: undefined });
    const watching = this.#follow(watch);
    for (let round = 0; !this.#stop.signal.aborted; round++) {
      const next = performance.now() + this.#intervalMs;
      try {
        await this.#round(round);
      } catch (error) {
        this.#wrong.push(`Probe: ${error instanceof Error ? error.message : String(error)}`);
      }
      this.#rounds++;
      await delay(Math.max(1, next - performance.now()));
    }
    watch.cancel();
    await watching;
  }

  async #round(round: number): Promise<void> {
    await this.#deliver(round);
    await this.#timed("get", () => this.#connection.get(key, match.linearizable, 0));
    await this.#timed("list", () => this.#connection.list({}, match.any, 0));
    if (round % this.#roundsPerBeginning === this.#roundsPerBeginning - 1) await this.#beginWatch();
  }

  async #deliver(round: number): Promise<void> {
    const began = performance.now();
    const late = new AbortController();
    const delivered = new Promise<void>((resolve) => {
      let written = Number.POSITIVE_INFINITY;
      this.#onDelivered = (revision) => {
        if (revision >= written) resolve();
      };
      this.#connection.put(key, valueIn(round)).then(
        ({ revision }) => {
          written = revision;
          this.#onDelivered?.(this.#delivered);
        },
        (error: Error) => {
          this.#wrong.push(`Probe: a write failed: ${error.message}`);
          resolve();
        },
      );
    });
    const limit = delay(deliveryLimitMs, "late", { signal: late.signal }).catch(() => undefined);
    const end = await Promise.race([delivered, limit]);
    late.abort();
    if (end === "late")
      this.#wrong.push(`Probe: a write was not delivered within ${deliveryLimitMs} ms`);
    this.#add("delivery", began);
  }

  async #timed(
    measure: Measure,
    call: () => Promise<{ readonly revision: number }>,
  ): Promise<void> {
    const began = performance.now();
    const { revision } = await call();
    this.#add(measure, began);
    this.#delivered = Math.max(this.#delivered, revision);
  }

  #add(measure: Measure, began: number): void {
    const at = performance.timeOrigin + began;
    this.#latencies[measure].push({ at, ms: performance.now() - began });
  }

  /** A watch of any cached state begins with nothing older than what this client received before. */
  async #beginWatch(): Promise<void> {
    const delivered = this.#delivered;
    const watch = this.#connection.watch({ key, sendInitialEvents: true }, { afterRevision: 0 });
    for await (const bytes of watch) {
      const { initialEventsEnd, revision = 0 } = deliveredBy(bytes);
      if (!initialEventsEnd) continue;
      if (revision < delivered) {
        this.#wrong.push(
          `Probe: a watch began at ${revision} after ${delivered} had been delivered`,
        );
      }
      break;
    }
  }

  async #follow(watch: BareCall): Promise<void> {
    try {
      for await (const bytes of watch) {
        const { revision } = deliveredBy(bytes);
        if (revision === undefined) continue;
        this.#delivered = Math.max(this.#delivered, revision);
        this.#onDelivered?.(revision);
      }
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      const why = error instanceof Error ? error.message : String(error);
      this.#wrong.push(`Probe: the watch of ${this.#url} ended: ${why}`);
    }
  }
}

function valueIn(round: number): string {
  const thing: Thing = {
    ...{ metadata: { labels: { app: "probe" } }, spec: { node: "n1" } },
    ...{ write: `probe-${process.pid}-${round}`, filling: "" },
  };
  return JSON.stringify(thing);
}
