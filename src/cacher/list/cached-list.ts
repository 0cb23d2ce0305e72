import { SharedWork, type TimeSlicedWork } from "../../base/time-slices.ts";
import { compareKeys } from "../../model/key-order.ts";
import { type ChunkCache, type ChunkCacheEntry, costOf } from "../state/chunk-cache.ts";
import type { EventNode } from "../state/event-node.ts";
import type { Filter } from "../state/filter.ts";
import type { OrderedStore } from "../state/ordered-store.ts";
import type { WatchCache } from "../state/watch-cache.ts";
import { type ChunkBounds, type ListChunk, objectsOf, restOf, takeChunk } from "./list-chunk.ts";

/** About what a list with a single chunk takes, beside the chunk, in bytes. */
const listBytes = 2_000;
/** What it does not know of more events than this, a list takes to have changed all of it. */
const maxEventsBehind = 4_096;
/** How many events are looked through to find out whether a chunk is also of another revision. */
const maxEventsBetween = 1_000;

/** Where a list is found while it is in use. */
export interface ListRegistry {
  used(list: CachedList): void;
  unused(list: CachedList): void;
}

/** A chunk as it is kept: what stood in its range of keys at these revisions, and at all between them. */
interface CachedChunk extends ListChunk, ChunkCacheEntry {
  from: number;
  /** Infinity: nothing has changed in it yet, as far as the list knows. */
  until: number;
}

/**
 * The chunks of one list, each of a range of keys and of the revisions in which nothing changed there. The newest
 * ones do not overlap, and go on being true until a write falls into them; those that were true before are found
 * by the key that they begin after, for listings and initial states that began then.
 *
 * It holds no node of history: nodes are linked forward, so a list that nobody asks for would keep all that comes.
 */
export class CachedList {
  readonly filter: Filter;
  readonly #cache: WatchCache;
  readonly #chunkCache: ChunkCache;
  readonly #bounds: ChunkBounds;
  readonly #registry: ListRegistry;
  readonly #epoch: number;
  /** The newest ones, by the key that they begin after; empty for the first. */
  readonly #chunks = new Map<string, CachedChunk>();
  /** The same keys in order. */
  readonly #starts: string[] = [];
  /** Those that are no longer true, by the same. */
  readonly #past = new Map<string, CachedChunk[]>();
  /** Those that are being made, by revision and by the same. */
  readonly #making = new Map<string, SharedWork<ListChunk>>();
  /** Every change up to this revision is known. */
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

  /** Whether the cache has not been filled anew since. */
  get isCurrent(): boolean {
    return this.#epoch === this.#cache.epoch;
  }

  /** What followed a key at `revision`, as far as one chunk goes; undefined if that has to be made. */
  find(after: string | undefined, revision: number): ListChunk | undefined {
    const key = after ?? "";
    this.#catchUp();
    const newest = this.#covering(key);
    // Of what came after the last that it knows, a list of a state that was will never hear.
    const isKnown = this.isCurrent || revision <= this.#asOf;
    if (newest !== undefined && isKnown && isOf(newest, revision)) return this.#share(newest, key);
    const past = this.#past.get(key)?.find((chunk) => isOf(chunk, revision));
    if (past !== undefined) return this.#share(past, key);
    if (newest === undefined || !this.#reachesBack(newest, revision)) return undefined;
    newest.from = revision;
    return this.#share(newest, key);
  }

  /**
   * What followed a key at `revision`, as far as one chunk goes. `state` is the state of that revision, for good.
   * All who need the same chunk make it together.
   */
  *chunk(
    after: string | undefined,
    revision: number,
    state: OrderedStore,
  ): TimeSlicedWork<ListChunk> {
    const key = after ?? "";
    const found = this.find(after, revision);
    if (found !== undefined) return found;
    // In place of the one that is no longer true, so that all that follow it stay what they are.
    const start = this.#covering(key)?.at ?? key;
    const made = yield* this.#make(start, revision, state);
    if (start === key) return made;
    // Objects may have come in between that fill the chunk before the key is reached.
    const reaches = made.last === undefined || compareKeys(key, made.last) < 0;
    return reaches ? restOf(made, key) : yield* this.#make(key, revision, state);
  }

  /** Keeps a chunk: for ChunkCache. */
  set(at: string, chunk: CachedChunk): void {
    this.#registry.used(this);
    const before = this.#chunks.get(at);
    if (chunk.until !== Infinity) {
      this.#addPast(chunk);
      return;
    }
    if (before !== undefined) {
      // From here on nobody looks whether something changes in it.
      before.until = Math.min(before.until, this.#asOf);
      this.#addPast(before);
    } else this.#starts.splice(this.#indexOf(at) + 1, 0, at);
    this.#chunks.set(at, chunk);
  }

  /** Forgets a chunk: for ChunkCache. */
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
      const objects = objectsOf(state, this.filter, start === "" ? undefined : start);
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
      chunk.until = this.#trueUntil(chunk);
    }
    this.#chunkCache.touch(chunk);
    return chunk;
  }

  /** Until when a chunk of `from` is true, which has just been made; the list knows all changes. */
  #trueUntil(chunk: CachedChunk): number {
    const { at, last, from } = chunk;
    const change = this.#firstChange(chunk, from, Infinity);
    if (change !== undefined) return change - 1;
    // Others may have been made meanwhile. Who looks for the newest looks for one.
    const before = this.#covering(at);
    const next = this.#starts[this.#indexOf(at) + 1];
    const overlaps =
      (before !== undefined && before.at !== at) ||
      (next !== undefined && (last === undefined || compareKeys(next, last) < 0));
    return overlaps ? this.#asOf : Infinity;
  }

  /** Whether nothing changed in the chunk from `revision`, which is before it is known to be true, until then. */
  #reachesBack(chunk: CachedChunk, revision: number): boolean {
    if (!this.isCurrent || chunk.until < revision || chunk.from <= revision) return false;
    return this.#firstChange(chunk, revision, chunk.from) === undefined;
  }

  /** The revision of the first change in the chunk's range after one and up to another; if in doubt, the next. */
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

  /** Learns which chunks have changed. */
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
    // What begins after the key itself does not hold it.
    const start = this.#starts[this.#starts[index] === key ? index - 1 : index];
    const chunk = start === undefined ? undefined : this.#chunks.get(start);
    if (chunk === undefined || !isWithin(chunk, key)) return;
    chunk.until = Math.min(chunk.until, revision - 1);
  }

  /** The newest chunk that has what follows a key, whether or not it is still true. */
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

  /** Of the last chunk that begins at or before a key; -1 if there is none. */
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
