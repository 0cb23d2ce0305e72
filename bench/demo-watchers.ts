/** The watchers of the demo, in their own process, so that their work does not delay the writer's clock. */
import { createHistogram, type RecordableHistogram } from "node:perf_hooks";
import { type Client, connect } from "../src/client/connect.ts";
import { answerParent, Child } from "./child.ts";
import { monotonicMs } from "./monotonic-clock.ts";

/** The resource that the demo writes and watches. */
export const resource = "default";

/** The value of an object: when its put was called, in monotonicMs. */
export interface Written {
  readonly sentAt: number;
}

type WatchersQuestion =
  | { readonly do: "open"; readonly addresses: readonly string[]; readonly count: number }
  | { readonly do: "report" };

/** What the watchers have received since the report before. */
export interface WatchersReport {
  /** Number of events, of all watchers together. */
  readonly events: number;
  /** From the call of a put of the demo until a watcher has its event, in milliseconds; 0 without events. */
  readonly p50: number;
  readonly p99: number;
  /** Number of watches that were interrupted and resumed. */
  readonly interruptions: number;
  /** The smallest resume point. */
  readonly revision: number;
}

/** The parent's side. */
export class DemoWatchers {
  readonly #child = new Child<WatchersQuestion>("demo-watchers.ts");

  /** Resolves when every watch is open. */
  async open(addresses: readonly string[], count: number): Promise<void> {
    await this.#child.ask({ do: "open", addresses, count });
  }

  async report(): Promise<WatchersReport> {
    return (await this.#child.ask({ do: "report" })) as WatchersReport;
  }

  /** Of the process. */
  get pid(): number | undefined {
    return this.#child.pid;
  }

  stop(): Promise<void> {
    return this.#child.stop();
  }
}

/** The watchers in their own process. */
class WatchersProcess {
  /** In microseconds, from 1 µs to 10 min. */
  readonly #latency: RecordableHistogram = createHistogram({ lowest: 1, highest: 600_000_000 });
  #revisions = new Float64Array();
  #events = 0;
  #interruptions = 0;

  async answer(question: WatchersQuestion): Promise<unknown> {
    if (question.do === "report") return this.#report();
    const client = connect({ address: question.addresses });
    this.#revisions = new Float64Array(question.count);
    await Promise.all(Array.from(this.#revisions, (_, i) => this.#open(client, i)));
    return undefined;
  }

  /** Resolves when the watch is open. It continues until the process ends. */
  #open(client: Client, i: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#watch(client, i, resolve).catch(reject);
    });
  }

  async #watch(client: Client, i: number, onOpened: () => void): Promise<void> {
    const onInterruption = (): void => void this.#interruptions++;
    for await (const batch of client.watch(resource, { onInterruption })) {
      if (this.#revisions[i] === 0) onOpened();
      this.#revisions[i] = batch.revision;
      for (const { object } of batch.events) {
        this.#events++;
        const sentAt = sentAtOf(object.value);
        if (sentAt === undefined) continue;
        this.#latency.record(Math.max(1, Math.round((monotonicMs() - sentAt) * 1_000)));
      }
    }
  }

  #report(): WatchersReport {
    const report = {
      events: this.#events,
      p50: this.#latency.count === 0 ? 0 : this.#latency.percentile(50) / 1_000,
      p99: this.#latency.count === 0 ? 0 : this.#latency.percentile(99) / 1_000,
      interruptions: this.#interruptions,
      revision: this.#revisions.reduce((least, each) => Math.min(least, each), Infinity),
    };
    this.#latency.reset();
    this.#events = 0;
    this.#interruptions = 0;
    return report;
  }
}

/** When the put of a value was called; undefined for one that the demo has not written: other clients may put any. */
function sentAtOf(value: Uint8Array): number | undefined {
  try {
    const written: unknown = JSON.parse(Buffer.from(value).toString());
    const sentAt: unknown = Object(written).sentAt;
    return typeof sentAt === "number" ? sentAt : undefined;
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  // Ctrl-C reaches the whole process group: the parent ends this process.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  const watchers = new WatchersProcess();
  answerParent<WatchersQuestion>((question) => watchers.answer(question));
}
