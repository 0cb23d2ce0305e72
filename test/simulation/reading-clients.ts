import { HistoryReader } from "../faults/history-reader.ts";
import { ListReader } from "../faults/list-reader.ts";
import { RecordedSubscriber } from "../faults/recorded-subscriber.ts";
import { RecordedWatcher, type WatcherOptions } from "../faults/recorded-watcher.ts";
import { Seeded } from "../faults/seeded.ts";
import type { CreditKind } from "../faults/subscribed-watch.ts";
import type { Wish } from "../faults/wire.ts";
import type { Accepted } from "../foreign/decompressed.ts";

/** How many clients of each kind a simulation has. */
export interface Reading {
  /** Whether there are watches of ranges, attributes and masks, each on a stream of its own. */
  readonly hasWatchers: boolean;
  /** Whether one client has such watches on a Subscribe stream. */
  readonly hasSubscriber: boolean;
  readonly hasLister: boolean;
  readonly historyReaders: number;
  /** Whether the client of the library, if there is one, has a subscription as well. */
  readonly librarySubscribes: boolean;
  /** The encoding of responses. Absent: they are not compressed. */
  readonly accepts?: Accepted | undefined;
}

type Watched = readonly [name: string, wish: Wish, credit: CreditKind];

const watched: readonly Watched[] = [
  [
    "a range",
    { range: { start: "a/2", end: "b/2" }, sendInitialEvents: true, includePrevious: true },
    "messages",
  ],
  [
    "attributes",
    { isOfAttributes: true, sendInitialEvents: true, includePrevious: true },
    "unlimited",
  ],
  ["parts of values", { mask: ["metadata.labels", "write"], includePrevious: true }, "messages"],
  [
    "the latest of a range",
    { range: { start: "b/\u{ff00}", end: "" }, delivery: "LATEST_STATE", sendInitialEvents: true },
    "unlimited",
  ],
  [
    "the latest attributes of a label",
    { isOfAttributes: true, labelSelector: "app=web", delivery: "LATEST_STATE" },
    "messages",
  ],
  [
    "parts of a range that come and go",
    { range: { start: "", end: "b/2\0" }, mask: ["spec"], types: ["ADDED", "DELETED"] },
    "unlimited",
  ],
];

/** What the clients need of their world. */
export type Surroundings = Pick<
  WatcherOptions,
  "endpoints" | "era" | "newestEra" | "acknowledged" | "writes"
> & { readonly delivered: ConstructorParameters<typeof RecordedWatcher>[1] };

/** Clients of ranges and orders, of attributes and parts of values, and of histories of keys. */
export class ReadingClients {
  readonly watchers: readonly RecordedWatcher[];
  readonly subscribers: readonly RecordedSubscriber[];
  readonly lister: ListReader;
  readonly historyReaders: readonly HistoryReader[];
  readonly #hasLister: boolean;

  /** `compacted`: the newest revision that the store was ever compacted at. */
  constructor(
    seed: number,
    { hasWatchers, hasSubscriber, hasLister, historyReaders, accepts }: Reading,
    surroundings: Surroundings,
    compacted: () => number,
  ) {
    const random = new Seeded(seed ^ 0x7d13);
    const { delivered, ...common } = surroundings;
    this.#hasLister = hasLister;
    this.watchers = (hasWatchers ? watched : []).map(([name, wish]) => {
      const manner = { hopsAfter: random.between(10, 40), accepts };
      return new RecordedWatcher(
        { ...common, name, wish, manner, random: random.fork() },
        delivered,
      );
    });
    this.subscribers = (hasSubscriber ? [watched] : []).map((watches) => {
      const name = "subscriber of ranges";
      return new RecordedSubscriber({ ...common, name, watches, accepts, random: random.fork() });
    });
    const reading = { ...common, pauseMs: 300, accepts };
    this.lister = new ListReader({ ...reading, random: random.fork() });
    this.historyReaders = Array.from(
      { length: historyReaders },
      () => new HistoryReader({ ...reading, compacted, random: random.fork() }),
    );
  }

  /** The clients that read once, and again. */
  get readers(): readonly (ListReader | HistoryReader)[] {
    return [this.lister, ...this.historyReaders];
  }

  /** Starts those that read. */
  start(): void {
    for (const reader of this.historyReaders) reader.start();
    if (this.#hasLister) this.lister.start();
  }
}
