import type { RecordedHistory } from "../faults/history-reader.ts";
import { PartsReader } from "../faults/parts-reader.ts";
import type { RepeatedReads } from "../faults/recorded-reader.ts";
import { RecordedSubscriber } from "../faults/recorded-subscriber.ts";
import { RecordedWatcher } from "../faults/recorded-watcher.ts";
import { keys } from "../faults/recorded-writer.ts";
import { Seeded } from "../faults/seeded.ts";
import type { CreditKind, SubscribedWatch } from "../faults/subscribed-watch.ts";
import type { Era } from "../faults/truth.ts";
import type { WatchRecord } from "../faults/watch-record.ts";
import type { HashRange, Wish } from "../faults/wire.ts";
import { keyHash } from "../guarantees/key-hash.ts";
import { type Held, heldAt, partition, wholeAt } from "../guarantees/shards.ts";
import type { ReadingClients, Surroundings } from "./reading-clients.ts";

/** How many clients of each kind a simulation has. */
export interface Parts {
  /** Clients of Subscribe, of the two kinds in turn. */
  readonly subscribers: number;
  /** Whether there are watches of shards, without values, and of some types, each on a stream of its own. */
  readonly hasWatchers: boolean;
  readonly hasReader: boolean;
}

/** What all shards had at the revision of a progress, and of which of etcd's histories that may be. */
interface SeenShards {
  readonly revision: number;
  readonly parts: readonly Held[];
  readonly fromEra: number;
  readonly toEra: number;
}

/**
 * Clients of many watches on one stream, and of parts of a resource: shards, objects without their values, numbers of objects,
 * and events of some types. Each watch and read is checked as any other is.
 */
export class PartsClients {
  readonly watchers: readonly RecordedWatcher[];
  readonly subscribers: readonly RecordedSubscriber[];
  readonly readers: readonly RepeatedReads[];
  readonly #reader: PartsReader;
  readonly #hasReader: boolean;
  readonly #reading: ReadingClients;
  readonly #shards: SeenShards[] = [];

  /** `reading`: clients that are run and judged with these. */
  constructor(seed: number, parts: Parts, surroundings: Surroundings, reading: ReadingClients) {
    const random = new Seeded(seed ^ 0x9a47);
    const shards = shardsOf(random);
    const { delivered, ...common } = surroundings;
    this.#hasReader = parts.hasReader;
    const watchers = (parts.hasWatchers ? streams(shards) : []).map(([name, wish]) => {
      const manner = { hopsAfter: random.between(10, 40) };
      const options = { ...common, name, wish, manner, random: random.fork() };
      return new RecordedWatcher(options, delivered);
    });
    const subscribers = Array.from({ length: parts.subscribers }, (_, i) => {
      const kinds = [mixed, ofShards(shards)];
      return new RecordedSubscriber({
        ...{ ...common, name: `subscriber ${i}`, watches: kinds[i % 2] ?? mixed },
        random: random.fork(),
        onProgress: (revision, watches) => this.#progressed(revision, watches),
      });
    });
    const lists = { endpoints: common.endpoints, pauseMs: 400, shards };
    this.#reader = new PartsReader({ ...common, ...lists, random: random.fork() });
    this.#reading = reading;
    this.watchers = [...watchers, ...reading.watchers];
    this.subscribers = [...subscribers, ...reading.subscribers];
    this.readers = [this.#reader, ...reading.readers];
  }

  get histories(): readonly RecordedHistory[] {
    return this.#reading.historyReaders.flatMap(({ histories }) => histories);
  }

  /** All that record watches. */
  get records(): readonly WatchRecord[] {
    return [...this.watchers, ...this.subscribers.flatMap(({ watches }) => watches)];
  }

  /** Those that faults are done to. */
  get disturbed(): readonly (RecordedWatcher | RecordedSubscriber)[] {
    return [...this.watchers, ...this.subscribers];
  }

  start(): void {
    for (const client of this.disturbed) client.start();
    if (this.#hasReader) this.#reader.start();
    this.#reading.start();
  }

  async stopReading(): Promise<void> {
    await Promise.all(this.readers.map((reader) => reader.stop()));
  }

  async stop(): Promise<void> {
    await Promise.all([...this.disturbed, ...this.readers].map((client) => client.stop()));
  }

  /** What contradicts the contract. `eras`: what happened in each of etcd's histories. */
  wrong(eras: readonly Pick<Era, "changes">[]): string[] {
    return [
      ...this.subscribers.flatMap(({ wrong }) => wrong),
      ...[...this.#reader.wrong, ...this.#reading.lister.wrong],
      ...this.#shards.flatMap(({ revision, parts, fromEra, toEra }) => {
        const found = eras
          .slice(fromEra, toEra + 1)
          .map(({ changes }) => partition(parts, wholeAt(changes, revision), revision));
        const isExplained = found.some(({ length }) => length === 0);
        return isExplained ? [] : (found[0] ?? []).map((what) => `The shards of a stream: ${what}`);
      }),
    ];
  }

  /** If all shards of a stream are among the watches: what they have together at the revision. */
  #progressed(revision: number, watches: readonly SubscribedWatch[]): void {
    const shards = watches.filter(({ wish }) => wish.shard !== undefined);
    if (shards.length < shardCount) return;
    const sequences = shards.flatMap((watch) => watch.sequences.at(-1) ?? []);
    const parts = shards.flatMap((watch, i) => {
      const sequence = sequences[i];
      const held = sequence && heldAt(watch.sequenceOf(sequence), revision);
      return held ?? [];
    });
    if (parts.length < shardCount) return;
    const fromEra = Math.min(...sequences.map((sequence) => sequence.fromEra));
    const toEra = Math.max(...sequences.map((sequence) => sequence.toEra));
    this.#shards.push({ revision, parts, fromEra, toEra });
  }
}

const shardCount = 3;

/** A partition of all hashes. Each of its bounds is the hash of a key: a bound that is misread moves one. */
function shardsOf(random: Seeded): HashRange[] {
  const hashes = keys.map(keyHash).sort((one, other) => (one < other ? -1 : 1));
  const inner = hashes.slice(0, -1);
  const chosen = inner.splice(random.between(0, inner.length - 1), 1);
  chosen.push(random.pick(inner));
  const bounds = chosen.sort((one, other) => (one < other ? -1 : 1));
  const lasts = [...bounds, 2n ** 64n - 1n];
  return lasts.map((last, i) => ({ first: i === 0 ? 0n : (lasts[i - 1] ?? 0n) + 1n, last }));
}

type Named = readonly [name: string, wish: Wish];

/** Each on a stream of its own. */
function streams(shards: readonly HashRange[]): Named[] {
  const [first, second, third] = shards.map((range) => [range]);
  return [
    ["keys alone", { isKeysOnly: true, sendInitialEvents: true, includePrevious: true }],
    ["keys of a label", { isKeysOnly: true, labelSelector: "app=web", includePrevious: true }],
    ["what comes and goes", { types: ["ADDED", "DELETED"], fieldSelector: "spec.node=n1" }],
    ["what is modified", { types: ["MODIFIED"], includePrevious: true }],
    ["the first shard", { shard: first ?? [], sendInitialEvents: true }],
    ["the second shard's latest", { shard: second ?? [], delivery: "LATEST_STATE" }],
    [
      "keys of a label in the third shard",
      { shard: third ?? [], labelSelector: "app=db", isKeysOnly: true, sendInitialEvents: true },
    ],
  ];
}

type Subscribed = readonly [...Named, credit: CreditKind];

/** Watches of all kinds on one stream. */
const mixed: readonly Subscribed[] = [
  ["all", { sendInitialEvents: true, includePrevious: true }, "unlimited"],
  ["a prefix", { prefix: "a/", includePrevious: true }, "messages"],
  ["keys of a prefix", { prefix: "b/", isKeysOnly: true, sendInitialEvents: true }, "bytes"],
  ["the latest of a label", { labelSelector: "app=web", delivery: "LATEST_STATE" }, "messages"],
  ["the latest", { delivery: "LATEST_STATE", sendInitialEvents: true }, "bytes"],
  ["what comes and goes", { types: ["ADDED", "DELETED"], labelSelector: "app=db" }, "unlimited"],
  ["one key", { key: "a/1", sendInitialEvents: true }, "messages"],
];

/** Shards that are together the whole. */
function ofShards(shards: readonly HashRange[]): Subscribed[] {
  return shards.map((range, i) => {
    const wish = { shard: [range], sendInitialEvents: true, isKeysOnly: i === 1 };
    return [`shard ${i}`, wish, i === 2 ? "messages" : "unlimited"] as const;
  });
}
