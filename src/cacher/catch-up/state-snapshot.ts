import type { WatchFanoutError } from "../../base/errors.ts";
import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { WatchBatch } from "../../model/event.ts";
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

/** The objects at one revision. Immutable. */
interface SnapshotContent {
  readonly revision: number;
  /** A superset of the objects that match the filter. */
  readonly objects: OrderedStore;
  readonly mark: SnapshotMark;
}

/** A stream that takes its initial state from a snapshot. */
export interface SnapshotReader {
  fail(error: WatchFanoutError): void;
}

/**
 * The state at one revision as one filter selects it, in chunks of the ListCache. So watches that begin with the same
 * state, or with one that is equal in part, get the same chunks, built and encoded once. The chunk cache evicts chunks
 * that no watcher has taken for a while; they are built again on demand.
 *
 * Its readers may be slow, but the memory that all old states keep alive is bounded: above the bound the oldest are
 * evicted, and their readers end with SLOW_CONSUMER.
 */
export class StateSnapshot implements RetainedSnapshot {
  readonly revision: number;
  readonly mark: SnapshotMark;
  readonly isIdle = false;
  /** Closes the state if its last chunk does not. */
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

  /** Whether it has several chunks. Before the first is taken: whether it may have. */
  get isLarge(): boolean {
    return this.#isLarge ?? this.#filter.key === undefined;
  }

  /** Returns the chunk that follows a key; undefined if it has to be built. */
  find(after: string | undefined): ListChunk | undefined {
    // A state from before a relist shares no chunk with the current one.
    if (this.#list.isCurrent) this.#list = this.#lists.open(this.#filter);
    const chunk = this.#list.find(after, this.revision);
    if (after === undefined && chunk !== undefined) this.#isLarge = chunk.last !== undefined;
    return chunk;
  }

  /** Returns the chunk that follows a key, and builds it if needed. */
  *chunk(after: string | undefined): TimeSlicedWork<ListChunk> {
    return this.find(after) ?? (yield* this.#list.chunk(after, this.revision, this.#objects));
  }

  /** Keeps the snapshot for the reader until `release`. */
  hold(reader: SnapshotReader): void {
    this.#readers.add(reader);
    // A single object keeps no other object alive.
    if (this.#filter.key === undefined) this.#retained.add(this);
  }

  /** Idempotent. */
  release(reader: SnapshotReader): void {
    this.#readers.delete(reader);
    if (this.#readers.size === 0) this.#retained.delete(this);
  }

  evict(maxBytes: number): void {
    const error = slowConsumer(
      `The initial state, of revision ${this.revision}, was the oldest that is kept, ` +
        `and old states exceeded ${maxBytes} bytes together.`,
    );
    for (const reader of [...this.#readers]) {
      this.release(reader);
      reader.fail(error);
    }
  }
}
