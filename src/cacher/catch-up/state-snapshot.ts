import type { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork, TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchBatch, WatchEvent } from "../../model/event.ts";
import type { CachedList } from "../list/cached-list.ts";
import type { ListCache } from "../list/list-cache.ts";
import type { ListChunk } from "../list/list-chunk.ts";
import { slowConsumer } from "../request/errors.ts";
import type { Filter } from "../state/filter.ts";
import type { OrderedStore } from "../state/ordered-store.ts";
import type {
  RetainedSnapshot,
  RetainedSnapshots,
  SnapshotMark,
} from "../state/retained-snapshots.ts";
import type { InitialState } from "./initial-state.ts";

/**
 * A last piece that is heavier than this, in bytes, is sent as it is, for all who begin with it, and closed by
 * another. A lighter one is made anew for each revision that closes it, which costs less than a message more.
 */
const maxClosingBytes = 16 * 1024;

/** What stands at a revision, for good. */
export interface SnapshotContent {
  readonly revision: number;
  /** Everything that the filter may let through. */
  readonly objects: OrderedStore;
  readonly mark: SnapshotMark;
}

/** A stream that is amidst a snapshot. */
export interface SnapshotReader {
  fail(error: WatchFanoutError): void;
}

/**
 * The state at one revision as it looks through one filter, cut into pieces. They are chunks of the ListCache, so
 * that those who begin with the same state, or with another of which a part is the same, get the same pieces, put
 * together and encoded once. Pieces that nobody has taken for a while are let go, and made again for who comes to
 * them after all.
 *
 * However slow its readers are: when all old states together keep too much alive, the oldest are given up, and
 * their readers end with SLOW_CONSUMER.
 */
export class StateSnapshot implements RetainedSnapshot {
  readonly revision: number;
  readonly mark: SnapshotMark;
  readonly isIdle = false;
  /** What closes it where the last piece does not. */
  readonly closing: WatchBatch;
  readonly #objects: OrderedStore;
  readonly #filter: Filter;
  readonly #lists: ListCache;
  readonly #retained: RetainedSnapshots;
  readonly #readers = new Set<SnapshotReader>();
  #list: CachedList;
  #isLarge: boolean | undefined;

  constructor(
    { revision, objects, mark }: SnapshotContent,
    filter: Filter,
    lists: ListCache,
    retained: RetainedSnapshots,
  ) {
    this.revision = revision;
    this.mark = mark;
    this.closing = new WatchBatch(revision, [], true);
    this.#objects = objects;
    this.#filter = filter;
    this.#lists = lists;
    this.#retained = retained;
    this.#list = lists.open(filter);
  }

  /** Whether it is of several pieces, or may be, as nobody has taken the first yet. */
  get isLarge(): boolean {
    return this.#isLarge ?? this.#filter.key === undefined;
  }

  /** What follows a key, if it is there; undefined if it has to be made. */
  find(after: string | undefined): ListChunk | undefined {
    // Of a state that the cache no longer has, nothing is the same in another.
    if (this.#list.isCurrent) this.#list = this.#lists.open(this.#filter);
    const chunk = this.#list.find(after, this.revision);
    if (after === undefined && chunk !== undefined) this.#isLarge = chunk.last !== undefined;
    return chunk;
  }

  /** What follows a key. */
  *chunk(after: string | undefined): TimeSlicedWork<ListChunk> {
    return this.find(after) ?? (yield* this.#list.chunk(after, this.revision, this.#objects));
  }

  /** Keeps it for the reader, until that lets go of it. */
  hold(reader: SnapshotReader): void {
    this.#readers.add(reader);
    // A single object is no state that keeps others alive.
    if (this.#filter.key === undefined) this.#retained.add(this);
  }

  /** Harmless if the reader does not hold it. */
  release(reader: SnapshotReader): void {
    this.#readers.delete(reader);
    if (this.#readers.size === 0) this.#retained.delete(this);
  }

  evict(maxBytes: number): void {
    const error = slowConsumer(
      `Taking the initial state, of revision ${this.revision}, took so long that old states came to more than the ` +
        `${maxBytes} bytes that are kept of them, and this one was the oldest.`,
    );
    for (const reader of [...this.#readers]) {
      this.release(reader);
      reader.fail(error);
    }
  }
}

export interface SnapshotInitialStateOptions {
  /** Who takes it. */
  readonly reader: SnapshotReader;
  readonly scheduler: TimeSliceScheduler;
  /** Who pays for making pieces, such as a connection. */
  readonly owner: object;
  /** Aborted when nobody wants the state any more. */
  readonly signal: AbortSignal;
  /** Called, never from within `next`, when the piece that was asked for is there, or why it won't be. */
  readonly onReady: (failure?: unknown) => void;
}

/** From a snapshot of the cache. */
export class SnapshotInitialState implements InitialState {
  /** Undefined once it has all been handed out, or is not wanted any more. */
  #snapshot: StateSnapshot | undefined;
  readonly #deps: SnapshotInitialStateOptions;
  #startAfter: string | undefined;
  /** The piece that was made for it. */
  #made: ListChunk | undefined;
  #isMaking = false;
  /** Whether `next` is being asked. */
  #isAsked = false;
  /** Whether all but what closes it has been handed out. */
  #isClosing = false;

  constructor(snapshot: StateSnapshot, deps: SnapshotInitialStateOptions) {
    this.#snapshot = snapshot;
    this.#deps = deps;
    snapshot.hold(deps.reader);
  }

  next(): WatchBatch | undefined {
    const snapshot = this.#snapshot;
    if (snapshot === undefined) return undefined;
    if (this.#isClosing) {
      this.drop();
      return snapshot.closing;
    }
    // What is being made is taken as such, also if another has made it first: the same is not to come twice.
    if (this.#isMaking) return undefined;
    const chunk = this.#made ?? snapshot.find(this.#startAfter) ?? this.#make(snapshot);
    if (chunk === undefined) return undefined;
    this.#made = undefined;
    this.#startAfter = chunk.last;
    if (chunk.last !== undefined) return batchOf(chunk);
    this.#isClosing = chunk.estimatedBytes > maxClosingBytes;
    if (this.#isClosing) return batchOf(chunk);
    this.drop();
    return closingOf(chunk, snapshot);
  }

  drop(): void {
    this.#snapshot?.release(this.#deps.reader);
    this.#snapshot = undefined;
    this.#made = undefined;
  }

  /** Has the next piece made, which may be done at once. */
  #make(snapshot: StateSnapshot): ListChunk | undefined {
    const { scheduler, owner, signal, onReady } = this.#deps;
    this.#isMaking = true;
    this.#isAsked = true;
    scheduler
      .run(owner, this.#makeNext(snapshot), signal)
      .catch((error: unknown) => onReady(error));
    this.#isAsked = false;
    return this.#made;
  }

  *#makeNext(snapshot: StateSnapshot): TimeSlicedWork<void> {
    this.#made = yield* snapshot.chunk(this.#startAfter);
    this.#isMaking = false;
    // On the owner's time: what the reader does with it is a part of what it costs.
    if (!this.#isAsked) this.#deps.onReady();
  }
}

function batchOf(chunk: ListChunk): WatchBatch {
  chunk.batch ??= new WatchBatch(undefined, added(chunk));
  return chunk.batch;
}

/** The last piece, which closes the state. */
function closingOf(chunk: ListChunk, { revision, closing }: StateSnapshot): WatchBatch {
  if (chunk.items.length === 0) return closing;
  if (chunk.batch?.revision !== revision) {
    chunk.batch = new WatchBatch(revision, added(chunk), true);
  }
  return chunk.batch;
}

function added({ items }: ListChunk): WatchEvent[] {
  return items.map((object) => new WatchEvent("ADDED", object, undefined));
}
