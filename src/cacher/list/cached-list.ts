import type { TimeSlicedWork } from "../../base/event-loop-turns.ts";
import { SharedWork } from "../../base/turns.ts";
import { compareKeys } from "../../model/key-order.ts";
import { type ChunkCache, type ChunkCacheEntry, costOf } from "../state/chunk-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { OrderedStore } from "../state/ordered-store.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { type ChunkBounds, type ListChunk, restOf, takeChunk } from "./list-chunk.ts";

/** Estimated memory of a list with a single chunk, without the chunk, in bytes. */
const listBytes = 2_000;
/** Maximum number of new events that a list examines; beyond it, all its chunks count as changed. */
const maxEventsBehind = 4_096;
/** Maximum number of events examined to find out whether a chunk is valid at another revision. */
const maxEventsBetween = 1_000;

/** The cache that holds a list while the list has chunks. */
interface ListRegistry {
  /** The list begins to make a chunk. Idempotent. */
  used(list: CachedList): void;
  /** The list has no chunk any more, and makes none. Idempotent. */
  unused(list: CachedList): void;
}

/** A chunk with the revisions at which it is valid: all from `from` to `until`, both included. */
interface CachedChunk extends ListChunk, ChunkCacheEntry {
  from: number;
  /** Infinity: still valid at the newest revision that the list has examined. */
  until: number;
}

/**
 * The chunks of one list. Each covers a range of keys, and is valid at the revisions between which nothing changed in
 * that range. The newest chunks do not overlap, and stay valid until a write falls into their range. Older chunks are
 * found by the key that they begin after, for lists and initial states of older revisions.
 *
 * A list holds no node of the event window: nodes are linked forward, so an unused list would retain all later events.
 */
export class CachedList {
  readonly filter: Filter;
  readonly #cache: WatchCache;
  readonly #chunkCache: ChunkCache;
  readonly #bounds: ChunkBounds;
  readonly #registry: ListRegistry;
  readonly #epoch: number;
  /** The newest chunks, by the key that they begin after; empty for the first. */
  readonly #chunks = new Map<string, CachedChunk>();
  /** The keys of `#chunks` in order. */
  readonly #starts: string[] = [];
  /** The chunks that are valid at older revisions only, by the key that they begin after. */
  readonly #past = new Map<string, CachedChunk[]>();
  /** The chunks in the making, by revision and by the key that they begin after. */
  readonly #making = new Map<string, SharedWork<ListChunk>>();
  /** All changes up to this revision have been examined. */
  #asOf: number;

  constructor(
    filter: Filter,
    cache: WatchCache,
    chunkCache: ChunkCache,
    bounds: ChunkBounds,
    registry: ListRegistry,
  ) {
    this.filter = filter;
    this.#cache = cache;
    this.#chunkCache = chunkCache;
    this.#bounds = bounds;
    this.#registry = registry;
    this.#epoch = cache.epoch;
    this.#asOf = cache.revision;
  }

  /** Whether the cached state has not been replaced since the list was made. */
  get isCurrent(): boolean {
    return this.#epoch === this.#cache.epoch;
  }

  /** Returns the chunk of the objects that followed the key `after` at `revision`; undefined if it is not cached. */
  find(after: string | undefined, revision: number): ListChunk | undefined {
    const key = after ?? "";
    this.#catchUp();
    const newest = this.#covering(key);
    // A list of a replaced state no longer learns of changes.
    const isKnown = this.isCurrent || revision <= this.#asOf;
    if (newest !== undefined && isKnown && isOf(newest, revision)) return this.#share(newest, key);
    const past = this.#past.get(key)?.find((chunk) => isOf(chunk, revision));
    if (past !== undefined) return this.#share(past, key);
    if (newest === undefined || !this.#reachesBack(newest, revision)) return undefined;
    newest.from = revision;
    return this.#share(newest, key);
  }

  /**
   * Returns the chunk of the objects that followed the key `after` at `revision`, and makes it if it is not cached.
   * `state` is an immutable snapshot of that revision. Callers that need the same chunk share the work.
   */
  *chunk(
    after: string | undefined,
    revision: number,
    state: OrderedStore,
  ): TimeSlicedWork<ListChunk> {
    const key = after ?? "";
    const found = this.find(after, revision);
    if (found !== undefined) return found;
    // Replaces the outdated chunk with the same start, so that the chunks that follow remain valid.
    const start = this.#covering(key)?.at ?? key;
    const made = yield* this.#make(start, revision, state);
    if (start === key) return made;
    // Objects added before the key may have filled the chunk before it reaches the key.
    const reaches = made.last === undefined || compareKeys(key, made.last) < 0;
    return reaches ? restOf(made, key) : yield* this.#make(key, revision, state);
  }

  /** Adds a chunk. For ChunkCache. */
  set(at: string, chunk: CachedChunk): void {
    const before = this.#chunks.get(at);
    if (chunk.until !== Infinity) {
      this.#addPast(chunk);
      return;
    }
    if (before !== undefined) {
      // Changes after `#asOf` are no longer examined for a chunk that has been replaced.
      before.until = Math.min(before.until, this.#asOf);
      this.#addPast(before);
    } else this.#starts.splice(this.#indexOf(at) + 1, 0, at);
    this.#chunks.set(at, chunk);
  }

  /** Removes a chunk. For ChunkCache. */
  delete(at: string, chunk: unknown): boolean {
    const newest = this.#chunks.get(at);
    if (newest === chunk) {
      this.#starts.splice(this.#indexOf(at), 1);
      this.#chunks.delete(at);
    } else {
      const others = this.#past.get(at)?.filter((other) => other !== chunk) ?? [];
      if (others.length > 0) this.#past.set(at, others);
      else this.#past.delete(at);
    }
    this.#checkUse();
    return true;
  }

  #addPast(chunk: CachedChunk): void {
    const others = this.#past.get(chunk.at);
    if (others === undefined) this.#past.set(chunk.at, [chunk]);
    else others.push(chunk);
  }

  #checkUse(): void {
    const size = this.#chunks.size + this.#past.size + this.#making.size;
    if (size === 0) this.#registry.unused(this);
  }

  *#make(start: string, revision: number, state: OrderedStore): TimeSlicedWork<ListChunk> {
    const name = `${revision} ${start}`;
    let making = this.#making.get(name);
    if (making === undefined) {
      const end = this.#starts[this.#indexOf(start) + 1];
      const objects = state.objectsIn(this.filter.scope, start);
      const work = this.#cacheMade(
        start,
        revision,
        takeChunk(objects, this.filter, this.#bounds, end),
      );
      making = new SharedWork(work, () => {
        this.#making.delete(name);
        this.#checkUse();
      });
      this.#making.set(name, making);
      this.#registry.used(this);
    }
    return yield* making.join();
  }

  *#cacheMade(
    at: string,
    from: number,
    work: TimeSlicedWork<ListChunk>,
  ): TimeSlicedWork<ListChunk> {
    const { items, estimatedBytes, scanned, last } = yield* work;
    const cost = costOf(estimatedBytes + at.length + this.filter.identity.length) + listBytes;
    const chunk: CachedChunk = {
      ...{ items, estimatedBytes, scanned, last, batch: undefined },
      ...{ owner: this, at, cost, isFresh: true, from, until: from },
    };
    if (this.isCurrent) {
      this.#catchUp();
      chunk.until = this.#validUntil(chunk);
    }
    this.#chunkCache.touch(chunk);
    return chunk;
  }

  /** The last revision at which a new chunk is valid. All changes have to be examined before. */
  #validUntil(chunk: CachedChunk): number {
    const { at, last, from } = chunk;
    const change = this.#firstChange(chunk, from, Infinity);
    if (change !== undefined) return change - 1;
    // Other chunks may have been made meanwhile, and the newest ones must not overlap.
    const before = this.#covering(at);
    const next = this.#starts[this.#indexOf(at) + 1];
    const overlaps =
      (before !== undefined && before.at !== at) ||
      (next !== undefined && (last === undefined || compareKeys(next, last) < 0));
    return overlaps ? this.#asOf : Infinity;
  }

  /** Whether the chunk is valid at `revision` already, which is before its `from`. */
  #reachesBack(chunk: CachedChunk, revision: number): boolean {
    if (!this.isCurrent || chunk.from <= revision) return false;
    return this.#firstChange(chunk, revision, chunk.from) === undefined;
  }

  /**
   * The revision of the first change in the chunk's range after `after` and up to `upTo`; undefined if nothing changed.
   * `after` + 1 if that is not known.
   */
  #firstChange(chunk: CachedChunk, after: number, upTo: number): number | undefined {
    if (after >= Math.min(upTo, this.#asOf)) return undefined;
    const node = this.#cache.eventWindow.find(after);
    if (node === undefined) return after + 1;
    let events = 0;
    for (let { next } = node; next !== undefined && next.revision <= upTo; { next } = next) {
      if (++events > maxEventsBetween) return after + 1;
      if (next.event !== undefined && isWithin(chunk, next.event.object.key)) return next.revision;
    }
    return undefined;
  }

  /** Examines the events since `#asOf`, and ends the validity of the chunks that they change. */
  #catchUp(): void {
    const { eventWindow, revision } = this.#cache;
    if (!this.isCurrent || this.#asOf === revision) return;
    const node = this.#chunks.size === 0 ? eventWindow.newest : eventWindow.find(this.#asOf);
    const known = this.#asOf;
    this.#asOf = revision;
    if (node === undefined || eventWindow.newest.sequence - node.sequence > maxEventsBehind) {
      for (const chunk of this.#chunks.values()) chunk.until = Math.min(chunk.until, known);
      return;
    }
    for (let { next } = node; next !== undefined; { next } = next) this.#touch(next);
  }

  #touch({ event, revision }: EventNode): void {
    if (event === undefined || !this.filter.includes(event.object.key)) return;
    const { key } = event.object;
    const index = this.#indexOf(key);
    // A chunk begins after its start key, so it does not contain it.
    const start = this.#starts[this.#starts[index] === key ? index - 1 : index];
    const chunk = start === undefined ? undefined : this.#chunks.get(start);
    if (chunk === undefined || !isWithin(chunk, key)) return;
    chunk.until = Math.min(chunk.until, revision - 1);
  }

  /** The newest chunk that contains the position after a key, whether or not it is still valid. */
  #covering(key: string): CachedChunk | undefined {
    const start = this.#starts[this.#indexOf(key)];
    const chunk = start === undefined ? undefined : this.#chunks.get(start);
    if (chunk === undefined || start === key) return chunk;
    return chunk.last === undefined || compareKeys(key, chunk.last) < 0 ? chunk : undefined;
  }

  #share(chunk: CachedChunk, key: string): ListChunk {
    this.#chunkCache.touch(chunk);
    return chunk.at === key ? chunk : restOf(chunk, key);
  }

  /** The index of the last chunk that begins at or before a key; -1 if all begin after it. */
  #indexOf(key: string): number {
    let low = 0;
    let high = this.#starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (compareKeys(this.#starts[middle] as string, key) <= 0) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }
}

function isOf({ from, until }: CachedChunk, revision: number): boolean {
  return from <= revision && revision <= until;
}

/** Whether the key is in the chunk's range. */
function isWithin({ at, last }: CachedChunk, key: string): boolean {
  return compareKeys(key, at) > 0 && (last === undefined || compareKeys(key, last) <= 0);
}
