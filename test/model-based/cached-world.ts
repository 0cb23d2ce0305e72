import { expect } from "vitest";
import { defaultBackoffBounds } from "../../src/base/backoff.ts";
import type { WatchFanoutError } from "../../src/base/errors.ts";
import { Cacher } from "../../src/cacher/cacher.ts";
import { maintenanceIntervalMs } from "../../src/cacher/watch/watcher-maintenance.ts";
import { AttributeReader } from "../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../src/codec/json-codec.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { RevisionRequirement, WatchStream } from "../../src/storage/storage.ts";
import { silent } from "../cacher/cached-store.ts";
import { MemoryDisk } from "../cacher/memory-keeper.ts";
import { FakeClock } from "../fake-clock.ts";
import type { Gap } from "../guarantees/latest-state.ts";
import { fieldText, labelText, type ReadWish, type WatchWish } from "./arbitraries.ts";
import { type AskPage, Listing, type Page } from "./listing.ts";
import { type Entry, Model, modelFields } from "./model.ts";
import { seenObject, seenResponse } from "./seen.ts";
import type { Setup, Step } from "./steps.ts";
import { type Resumption, type Source, WatchedStream } from "./watched-stream.ts";

const codec = new JsonCodec({ fields: modelFields });

/** More batches than a stream ever has. */
const everything = 1_000;

interface Replica {
  readonly cacher: Cacher;
  /** What it keeps. */
  readonly disk: MemoryDisk;
  /** The revision that its event window began after. */
  start: number;
  /** The ranges of revisions that it did not receive. */
  readonly gaps: Gap[];
  draining: boolean;
}

/** A store, a Cacher over it, its clients, and the model that they are compared with. */
export class CachedWorld {
  readonly #clock: FakeClock;
  readonly #store: MemoryStorage;
  readonly #model = new Model();
  readonly #setup: Setup;
  readonly #indexes: readonly string[];
  readonly #streams: {
    readonly watched: WatchedStream;
    readonly replica: Replica;
    expiresAt: number;
  }[] = [];
  readonly #listings: { readonly listing: Listing; readonly replica: Replica }[] = [];
  /** The last one is the current one; all others drain. */
  readonly #replicas: Replica[] = [];
  #settledAt = 1;
  #compacted = 1;

  constructor(setup: Setup, indexes: readonly string[], clock: FakeClock = new FakeClock()) {
    this.#clock = clock;
    this.#store = new MemoryStorage({ clock });
    this.#setup = setup;
    this.#indexes = indexes;
  }

  /** All responses that clients received. */
  get outcome(): unknown {
    return {
      streams: this.#streams.map(({ watched }) => [watched.responses, watched.endReason]),
      listings: this.#listings.map(({ listing }) => listing.outcome),
    };
  }

  /** Runs all steps, then lets everything settle. Fails at the first difference from the model. */
  async live(steps: readonly Step[]): Promise<void> {
    for (const entries of this.#setup.before) await this.#write(entries);
    await this.#startReplica();
    for (const step of steps) await this.#take(step);
    await this.#settle();
    await this.#drainStreams();
    for (const { watched } of this.#streams) {
      watched.check();
      watched.checkHonest(this.#settledAt);
    }
    await this.#comeToRest();
    await this.#resumeElsewhere();
  }

  /** Every live stream gets a bookmark at the newest revision without a write, and then ends with DRAINING. */
  async #comeToRest(): Promise<void> {
    for (let waited = 0; waited < 4_000; waited += 500) {
      await this.#elapse(500);
      await this.#drainStreams();
    }
    for (const { watched, expiresAt } of this.#streams) {
      watched.check();
      if (!watched.live) continue;
      expect(watched.resumePoint).toBe(this.#settledAt);
      expect(expiresAt).toBeGreaterThan(this.#clock.now() - maintenanceIntervalMs);
    }
    expect(this.#current.cacher.stats().inconsistencies).toBe(0);
    expect(this.#current.cacher.stats().waitingRequests).toBe(0);
    const lived = this.#streams.filter(({ watched }) => watched.live);
    this.#drain();
    await this.#drainStreams();
    for (const { watched } of lived) {
      watched.check();
      expect(watched.endReason).toBe("DRAINING");
    }
  }

  /** Every stream, however it ended, can be resumed on another replica without a gap. */
  async #resumeElsewhere(): Promise<void> {
    await this.#startReplica();
    const before = this.#streams.length;
    for (let i = 0; i < before; i++) this.#resume(i, 0);
    await this.#write([["a", "the end"]]);
    await this.#settle();
    await this.#drainStreams();
    for (const { watched } of this.#streams.slice(before)) {
      watched.check();
      watched.checkHonest(this.#settledAt);
    }
  }

  async #take(step: Step): Promise<void> {
    switch (step.step) {
      case "write":
        return this.#write(step.entries);
      case "settle":
        return this.#settle();
      case "elapse":
        return this.#elapse(step.ms);
      case "watch":
        return this.#watch(step.wish);
      case "take":
        this.#streamAt(step.stream, (i) => this.#takeFrom(i, step.batches));
        return;
      case "close":
        return this.#streamAt(step.stream, (i) => this.#streams[i]?.watched.close());
      case "resume":
        return this.#streamAt(step.stream, (i) => this.#resume(i, step.point));
      case "read":
        return this.#read(step.wish);
      case "next page":
        this.#listings[step.listing % this.#listings.length]?.listing.askNext(this.#circumstances);
        return;
      case "compact":
        return this.#compact(step.back);
      case "lose history":
        return this.#loseHistory(step.writes, step.back);
      case "ask for progress":
        return this.#askForProgress();
      case "replace":
        await this.#settle();
        return this.#replace(step.lost);
    }
  }

  async #write(entries: readonly Entry[]): Promise<void> {
    this.#model.write(entries);
    const revision = await this.#store.txn(
      entries.map(([key, value]) =>
        value === null
          ? { type: "delete", key }
          : { type: "put", key, value: Buffer.from(value, "latin1") },
      ),
    );
    expect(revision).toBe(this.#model.revision);
  }

  async #settle(): Promise<void> {
    // Concurrent requests for an initial state are gathered for up to 50 ms.
    await this.#clock.elapse(50);
    this.#hasSettled();
  }

  async #elapse(ms: number): Promise<void> {
    await this.#clock.elapse(ms);
    this.#hasSettled();
  }

  #hasSettled(): void {
    this.#settledAt = this.#model.revision;
    const { revision, eventWindow } = this.#current.cacher.stats();
    const oldest = this.#oldestOf(this.#current);
    expect(revision).toBe(this.#settledAt);
    expect(eventWindow.oldestRevision).toBe(oldest);
    for (const { watched, replica } of this.#streams) {
      watched.settled(this.#settledAt, this.#resumableOf(replica));
    }
    for (const { listing, replica } of this.#listings) listing.settled(this.#oldestOf(replica));
  }

  async #replace(lost: number | undefined): Promise<void> {
    const disk = lost === undefined ? undefined : this.#current.disk.copy();
    disk?.lose(lost ?? 0);
    this.#drain();
    await this.#startReplica(disk);
  }

  async #startReplica(disk: MemoryDisk = new MemoryDisk(() => this.#clock.now())): Promise<void> {
    const kept = disk.state;
    const cacher = new Cacher({
      storage: this.#store,
      clock: this.#clock,
      logger: silent,
      name: "things",
      random: () => 0.5,
      eventWindow: { maxEvents: this.#setup.historyEvents },
      watchers: { ...this.#setup.watchers, stallTimeoutMs: 1e9 },
      attributes: new AttributeReader(codec, this.#clock, silent),
      indexes: this.#indexes,
      consistencyIntervalMs: 2_000,
      keeper: disk.keeper(),
      timeOfDay: () => this.#clock.now(),
    });
    const listed = Math.max(1, this.#model.revision - this.#setup.historyEvents, this.#compacted);
    const isKept = kept !== undefined && kept.revision >= this.#compacted;
    const relisted = kept === undefined ? listed : this.#model.revision;
    const start = isKept ? kept.eventsAfter : relisted;
    this.#replicas.push({ cacher, disk, start, gaps: [], draining: false });
    cacher.start();
    await this.#elapse(200);
    expect(cacher.ready).toBe(true);
    const relists = kept === undefined || isKept ? 0 : 1;
    expect(cacher.stats()).toMatchObject({ relists, warmStarts: kept === undefined ? 0 : 1 });
  }

  #drain(): void {
    this.#current.draining = true;
    this.#current.cacher.drain();
  }

  #watch(wish: WatchWish): void {
    const after = wish.back === undefined ? undefined : this.#model.revision - wish.back;
    this.#open(wish, after);
  }

  #resume(i: number, back: number): void {
    const resumption = this.#streams[i]?.watched.resumption(back);
    if (resumption === undefined) return;
    this.#open(resumption.wish, resumption.from.revision, resumption.from);
  }

  #open(wish: WatchWish, afterRevision: number | undefined, resumes?: Resumption): void {
    const replica = this.#current;
    const { cacher } = replica;
    const expiresAt = this.#clock.now() + (wish.lifetimeMs ?? Infinity);
    const history = { "not said": "", "this one": cacher.currentHistoryId, another: "another" };
    let stream: WatchStream;
    try {
      stream = cacher.watch({
        scope: wish.scope,
        afterRevision,
        withPrevious: wish.includePrevious,
        selection: cacher.select(
          ...(wish.unusable ?? ([labelText(wish.selector), fieldText(wish.selector)] as const)),
        ),
        sendInitialEvents: wish.sendInitialEvents,
        delivery: wish.delivery,
        bookmarkIntervalMs: wish.bookmarkIntervalMs,
        eagerBookmarks: wish.eagerBookmarks,
        historyId: history[wish.history],
        expiresAt,
      });
    } catch (error) {
      stream = refused(error as WatchFanoutError);
    }
    const then = {
      model: this.#model,
      calledAt: this.#model.revision,
      cachedAt: this.#settledAt,
      oldestThen: this.#resumableOf(replica),
    };
    const watched = new WatchedStream(
      wish,
      afterRevision,
      sourceOf(stream),
      then,
      resumes,
      replica.gaps,
    );
    const i = this.#streams.push({ watched, replica, expiresAt }) - 1;
    const { entangled } = this.#setup;
    const takeAtOnce = () => (entangled ? this.#takeFromAll() : this.#takeFrom(i, everything));
    if (wish.takesAtOnce) stream.onReadable(takeAtOnce);
  }

  #read(wish: ReadWish): void {
    const revision = this.#model.revision - wish.back;
    const { cacher } = this.#current;
    const ask: AskPage = (at, previous) => askCacher(cacher, wish, at, previous);
    const listing = new Listing(wish, revision, ask, this.#model);
    listing.askNext(this.#circumstances);
    this.#listings.push({ listing, replica: this.#current });
  }

  /** Compacts only revisions that the cache holds, so that it does not lose history. */
  async #compact(back: number): Promise<void> {
    await this.#settle();
    const revision = Math.max(1, this.#model.revision - back);
    this.#compacted = Math.max(this.#compacted, revision);
    await this.#store.compact(revision);
  }

  /** Compacts revisions that the caches have not received, if `back` is small enough. */
  async #loseHistory(writes: readonly (readonly Entry[])[], back: number): Promise<void> {
    await this.#settle();
    // Draining replicas follow the store as well.
    const before = this.#replicas.map((replica) => ({ replica, ...replica.cacher.stats() }));
    for (const entries of writes) await this.#write(entries);
    const compacted = Math.max(1, this.#model.revision - back);
    this.#compacted = Math.max(this.#compacted, compacted);
    await this.#store.compact(compacted);
    await this.#untilFollowed();
    for (const { replica, relists, revision: after } of before) {
      const now = replica.cacher.stats();
      if (now.relists === relists) continue;
      replica.start = now.revision;
      replica.gaps.push({ after, upTo: now.revision });
    }
    this.#hasSettled();
  }

  /** Waits until every replica has the newest state. Losses in a row make the Reflector's pauses longer. */
  async #untilFollowed(): Promise<void> {
    const isBehind = ({ cacher }: Replica) => cacher.stats().revision < this.#model.revision;
    for (let waited = 0; waited < 2 * defaultBackoffBounds.maxMs; waited += 1_000) {
      await this.#clock.elapse(1_000);
      if (!this.#replicas.some(isBehind)) return;
    }
  }

  async #askForProgress(): Promise<void> {
    this.#current.cacher.requestProgress();
    await this.#settle();
    await this.#drainStreams();
    for (const { watched, replica } of this.#streams) {
      if (replica !== this.#current) continue;
      if (watched.live) expect(watched.resumePoint).toBe(this.#settledAt);
    }
  }

  #takeFrom(i: number, batches: number): number {
    const stream = this.#streams[i];
    if (stream === undefined) return 0;
    const { watched, replica, expiresAt } = stream;
    const toDrain = replica.draining || expiresAt <= this.#clock.now();
    // The cache may have received all writes, since this may run while it receives them.
    const oldest = this.#oldestOf(replica, this.#model.revision);
    const taken = watched.take(batches, { oldest, compacted: this.#compacted, toDrain });
    expect(taken, "batches without an end").toBeLessThan(everything);
    return taken;
  }

  /** Takes all batches available now, from all streams. */
  #takeFromAll(): void {
    for (const i of this.#streams.keys()) this.#takeFrom(i, everything);
  }

  /** Takes all batches from all streams, also those that become available in later time slices. */
  async #drainStreams(): Promise<void> {
    // A watch from before the event window reads the store on when its client has read, also if that got nothing.
    for (let idle = 0; idle < 2; idle++) {
      let taken = 0;
      for (const i of this.#streams.keys()) taken += this.#takeAll(i);
      if (taken > 0) idle = -1;
      await this.#clock.settle();
    }
  }

  /** Takes all batches of a stream, also those that become available in later time slices. Returns their number. */
  #takeAll(i: number): number {
    let taken = this.#takeFrom(i, everything);
    while (this.#clock.pendingImmediates > 0) {
      this.#clock.runImmediates();
      taken += this.#takeFrom(i, everything);
    }
    return taken;
  }

  #streamAt(number: number, act: (i: number) => void): void {
    if (this.#streams.length > 0) act(number % this.#streams.length);
  }

  get #current(): Replica {
    const replica = this.#replicas.at(-1);
    if (replica === undefined) throw new Error("There is no replica yet.");
    return replica;
  }

  get #circumstances() {
    return {
      calledAt: this.#model.revision,
      cachedAt: this.#settledAt,
      compacted: this.#compacted,
    };
  }

  /** The smallest revision that can be resumed from, in the cache or in the store. */
  #resumableOf(replica: Replica): number {
    return Math.min(this.#oldestOf(replica), this.#compacted);
  }

  /** The smallest revision that the cache can resume from when it is at `revision`. */
  #oldestOf({ start }: Replica, revision: number = this.#settledAt): number {
    return this.#model.oldestResumable(start, this.#setup.historyEvents, revision);
  }
}

/** Converts batches to responses. */
function sourceOf(stream: WatchStream): Source {
  return {
    read: () => {
      const batch = stream.read();
      return batch === undefined ? undefined : seenResponse(batch);
    },
    get ended() {
      return (stream.ended as WatchFanoutError | null) ?? undefined;
    },
    close: () => stream.close(),
  };
}

async function askCacher(
  cacher: Cacher,
  { scope, unusable, selector, pageSize: limit, pageBytes: maxBytes }: ReadWish,
  at: RevisionRequirement,
  previous: Page | undefined,
): Promise<Page> {
  if ("key" in scope) {
    const { revision, object } = await cacher.get({ key: scope.key, at });
    const items = object === undefined ? [] : [seenObject(object)];
    return { revision, items, next: undefined, remaining: 0 };
  }
  const [labels, fields] = unusable ?? [labelText(selector), fieldText(selector)];
  const selection = cacher.select(labels, fields);
  const { prefix } = scope;
  const startAfter = previous?.next;
  const asked = { prefix, startAfter, limit, maxBytes, at, selection };
  const { revision, items, next, remaining } = await cacher.list(asked);
  return { revision, items: items.map(seenObject), next, remaining };
}

/** A watch that failed before it had a stream. */
function refused(error: WatchFanoutError): WatchStream {
  return { read: () => undefined, ended: error, onReadable: () => {}, close: () => {} };
}
