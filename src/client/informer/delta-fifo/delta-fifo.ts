import { abortable } from "../../../base/wait.ts";
import { KeyedQueue } from "./keyed-queue.ts";

/** Any object with a key. */
export interface Keyed {
  /** Unique within the resource. */
  readonly key: string;
}

/**
 * A change of an object.
 *
 * - `Added`, `Updated`: it was written.
 * - `Replaced`: it is part of a list; it may be new, changed, or unchanged.
 * - `Sync`: it is unchanged, and is delivered again by a resync.
 * - `Deleted`: it was deleted, and `object` is its last known state.
 */
export type Delta<T extends Keyed> =
  | { readonly type: "Added" | "Updated" | "Replaced" | "Sync"; readonly object: T }
  | { readonly type: "Deleted"; readonly object: T | DeletedFinalStateUnknown<T> };

/** The changes of one object, oldest first; never empty. */
export type Deltas<T extends Keyed> = readonly Delta<T>[];

/**
 * A deleted object whose deletion was detected by a list, not by a watch. Its final state may be later than `object`,
 * the last known state. It may even have been deleted and created again in between.
 */
export class DeletedFinalStateUnknown<T extends Keyed> {
  /** The key of the object. */
  readonly key: string;
  /** The last known state. */
  readonly object: T;

  constructor(object: T) {
    this.key = object.key;
    this.object = object;
  }
}

/** Returns the last known state of a deleted object, however its deletion was detected. */
export function lastKnown<T extends Keyed>(gone: T | DeletedFinalStateUnknown<T>): T {
  return gone instanceof DeletedFinalStateUnknown ? gone.object : gone;
}

/** Maximum length of the deltas of a key after coalescing. */
export const coalescedLength = 4;

/**
 * Coalesces deltas to at most `coalescedLength`: the first, the last deletion and the delta after it, and the latest.
 * Never leaves two deletions in sequence.
 */
export function coalesceDeltas<T extends Keyed>(deltas: Deltas<T>): Delta<T>[] {
  const deleted = deltas.findLastIndex(({ type }) => type === "Deleted");
  const first = deleted > 0 && deltas[0]?.type === "Deleted" ? deleted : 0;
  const kept = new Set([first, deleted, deleted + 1, deltas.length - 1]);
  return deltas.filter((_, at) => kept.has(at));
}

/** The deltas of one key that are queued. */
interface PendingDeltas<T extends Keyed> {
  readonly key: string;
  /** Never empty. */
  deltas: Delta<T>[];
  /** Whether the key is part of the first list. */
  isInitial: boolean;
}

/** The deltas that a consumer has taken, and those that arrived since. */
interface InFlight<T extends Keyed> {
  readonly gathered: PendingDeltas<T>;
  since: PendingDeltas<T> | undefined;
}

const defaultCapacity = 10_000;

/**
 * A queue of changes between a producer and a consumer, as in client-go: per key, every change in order.
 *
 * A key enters the queue with its first delta and keeps its position. It is handed out with all its deltas to one
 * consumer; deltas that arrive meanwhile are queued until that consumer is done. If the consumer fails, the deltas
 * are put back before the newer ones, and the key goes to the end of the queue.
 *
 * A deletion is not queued twice. Above `capacity` deltas, or `capacityBytes`, each further delta coalesces those of
 * its key: to at most four, and to none if the consumer never knew the object and it is deleted again. So the queue
 * holds at most that many deltas plus four per object that exists or that the consumer knows, at any rate of change
 * and for any consumer. Coalescing loses intermediate states.
 */
export class DeltaFIFO<T extends Keyed> {
  readonly #known: KnownObjects<T>;
  readonly #capacity: number;
  readonly #capacityBytes: number;
  readonly #bytesOf: (object: T | DeletedFinalStateUnknown<T>) => number;
  readonly #queue = new KeyedQueue<PendingDeltas<T>>();
  /** Deltas that consumers process, by key. */
  readonly #taken = new Map<string, InFlight<T>>();
  #pendingDeltas = 0;
  #pendingBytes = 0;
  #coalescedDeltas = 0;
  #isPopulated = false;
  /** Number of keys of the first list that have not been processed. */
  #initial = 0;
  /** Resolves when the next key arrives. */
  #arrival: PromiseWithResolvers<void> | undefined;

  /** Creates an empty queue. */
  constructor(options: DeltaFIFOOptions<T>) {
    this.#known = options.known;
    this.#capacity = options.capacity ?? defaultCapacity;
    this.#capacityBytes = options.capacityBytes ?? Infinity;
    this.#bytesOf = options.bytesOf ?? (() => 0);
  }

  /** Number of queued keys. */
  get length(): number {
    return this.#queue.length;
  }

  /** Number of queued deltas of all keys, without those that are being processed. */
  get pendingDeltas(): number {
    return this.#pendingDeltas;
  }

  /** Size of the queued deltas, as `bytesOf` counts, in bytes. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** Number of deltas that were removed by coalescing since the start. */
  get coalescedDeltas(): number {
    return this.#coalescedDeltas;
  }

  /** Whether the first list has arrived and all of it has been processed. */
  get hasSynced(): boolean {
    return this.#isPopulated && this.#initial === 0;
  }

  /** Drops all queued deltas. They are not handed out, and `hasSynced` does not become true by this. */
  clear(): void {
    this.#queue.clear();
    for (const taken of this.#taken.values()) taken.since = undefined;
    this.#pendingDeltas = 0;
    this.#pendingBytes = 0;
  }

  /** Returns the latest state of an object, queued or known; undefined if it does not exist. */
  get(key: string): T | undefined {
    const taken = this.#taken.get(key);
    const gathered = this.#queue.get(key) ?? taken?.since ?? taken?.gathered;
    const newest = gathered?.deltas.at(-1);
    if (newest === undefined) return this.#known.get(key);
    return newest.type === "Deleted" ? undefined : newest.object;
  }

  /** Enqueues that the object was created. */
  add(object: T): void {
    this.#append(object.key, { type: "Added", object });
  }

  /** Enqueues that the object was changed. */
  update(object: T): void {
    this.#append(object.key, { type: "Updated", object });
  }

  /**
   * Enqueues a deletion; `object` is the last state. No effect if the latest state of the object is already deleted.
   */
  delete(object: T): void {
    if (this.get(object.key) !== undefined) this.#append(object.key, { type: "Deleted", object });
  }

  /**
   * Enqueues the whole state: each of these objects, and the deletion, with an unknown final state, of every other
   * object that is queued or known.
   */
  replace(objects: readonly T[]): void {
    const isFirst = !this.#isPopulated;
    this.#isPopulated = true;
    const listed = new Set<string>();
    for (const object of objects) {
      listed.add(object.key);
      this.#append(object.key, { type: "Replaced", object }, isFirst);
    }
    for (const keys of [this.#known.keys(), this.#queue.keys(), this.#taken.keys()]) {
      for (const key of keys) {
        const object = listed.has(key) ? undefined : this.get(key);
        if (object === undefined) continue;
        this.#append(
          key,
          { type: "Deleted", object: new DeletedFinalStateUnknown(object) },
          isFirst,
        );
      }
    }
  }

  /** Enqueues every known object again (`Sync`), except those that have other deltas. */
  resync(): void {
    for (const key of this.#known.keys()) {
      if (this.#queue.get(key) !== undefined || this.#taken.has(key)) continue;
      const object = this.#known.get(key);
      if (object !== undefined) this.#append(key, { type: "Sync", object });
    }
  }

  /**
   * Calls `process` with the first key, and returns its result; undefined if the queue is empty. Throws what it
   * throws, after putting the deltas back.
   */
  popNow<Result>(process: ProcessDeltas<T, Result>): { readonly result: Result } | undefined {
    const taken = this.#take();
    if (taken === undefined) return undefined;
    let result: Result;
    try {
      result = process(taken.deltas, taken.isInitial);
    } catch (error) {
      this.#putBack(taken);
      throw error;
    }
    this.#finish(taken);
    return { result };
  }

  /**
   * Waits for a key, calls `process` with it, and resolves to its result. Rejects with what it throws, after putting
   * the deltas back; or with the signal's reason if that is aborted before a key arrives.
   */
  async pop<Result>(
    process: ProcessDeltas<T, Result | Promise<Result>>,
    signal?: AbortSignal,
  ): Promise<Result> {
    signal?.throwIfAborted();
    let taken = this.#take();
    while (taken === undefined) {
      this.#arrival ??= Promise.withResolvers();
      await abortable(this.#arrival.promise, signal);
      taken = this.#take();
    }
    let result: Result;
    try {
      result = await process(taken.deltas, taken.isInitial);
    } catch (error) {
      this.#putBack(taken);
      throw error;
    }
    this.#finish(taken);
    return result;
  }

  #append(key: string, delta: Delta<T>, isInitial: boolean = false): void {
    const gathered = this.#gathered(key);
    if (isInitial && !gathered.isInitial) {
      gathered.isInitial = true;
      this.#initial++;
    }
    gathered.deltas.push(delta);
    this.#pendingDeltas++;
    this.#pendingBytes += this.#bytesOf(delta.object);
    this.#makeRoom(gathered);
  }

  /** Where the next delta of this key is queued. */
  #gathered(key: string): PendingDeltas<T> {
    const taken = this.#taken.get(key);
    const there = taken === undefined ? this.#queue.get(key) : taken.since;
    if (there !== undefined) return there;
    const gathered: PendingDeltas<T> = { key, deltas: [], isInitial: false };
    if (taken === undefined) this.#enqueue(gathered);
    else taken.since = gathered;
    return gathered;
  }

  #makeRoom(gathered: PendingDeltas<T>): void {
    const isRoom =
      this.#pendingDeltas <= this.#capacity && this.#pendingBytes <= this.#capacityBytes;
    if (isRoom) return;
    const { key, deltas } = gathered;
    const taken = this.#taken.get(key);
    const isGone = deltas.at(-1)?.type === "Deleted";
    const wasThere = taken !== undefined || this.#known.get(key) !== undefined;
    if (isGone && !wasThere) gathered.deltas = [];
    else if (deltas.length > coalescedLength) gathered.deltas = coalesceDeltas(deltas);
    const coalesced = deltas.length - gathered.deltas.length;
    if (coalesced > 0) this.#pendingBytes -= this.#bytesIn(deltas) - this.#bytesIn(gathered.deltas);
    this.#pendingDeltas -= coalesced;
    this.#coalescedDeltas += coalesced;
    if (gathered.deltas.length > 0) return;
    this.#queue.delete(key);
    if (gathered.isInitial) this.#initial--;
  }

  #bytesIn(deltas: Deltas<T>): number {
    let bytes = 0;
    for (const { object } of deltas) bytes += this.#bytesOf(object);
    return bytes;
  }

  #enqueue(gathered: PendingDeltas<T>): void {
    this.#queue.set(gathered.key, gathered);
    this.#arrival?.resolve();
    this.#arrival = undefined;
  }

  #take(): PendingDeltas<T> | undefined {
    const gathered = this.#queue.shift();
    if (gathered === undefined) return undefined;
    this.#pendingDeltas -= gathered.deltas.length;
    this.#pendingBytes -= this.#bytesIn(gathered.deltas);
    this.#taken.set(gathered.key, { gathered, since: undefined });
    return gathered;
  }

  #finish({ key, isInitial }: PendingDeltas<T>): void {
    const since = this.#taken.get(key)?.since;
    this.#taken.delete(key);
    if (isInitial) this.#initial--;
    if (since !== undefined) this.#enqueue(since);
  }

  #putBack(gathered: PendingDeltas<T>): void {
    const { key } = gathered;
    const since = this.#taken.get(key)?.since;
    this.#taken.delete(key);
    this.#pendingDeltas += gathered.deltas.length;
    this.#pendingBytes += this.#bytesIn(gathered.deltas);
    // A copy, since the consumer that failed may have kept the array.
    gathered.deltas = [...gathered.deltas, ...(since?.deltas ?? [])];
    if (since?.isInitial === true) gathered.isInitial = true;
    this.#enqueue(gathered);
    this.#makeRoom(gathered);
  }
}

/** The objects that the consumer of a DeltaFIFO holds, such as an Indexer. */
export interface KnownObjects<T extends Keyed> {
  /** Returns the object; undefined if it does not exist. */
  get(key: string): T | undefined;
  /** Iterates over all keys. */
  keys(): Iterable<string>;
}

/** Options of a DeltaFIFO. */
export interface DeltaFIFOOptions<T extends Keyed> {
  /** The objects that the consumer holds, to detect deletions in a relist. */
  readonly known: KnownObjects<T>;
  /** Maximum number of deltas that are kept one by one; beyond it they are coalesced by key. Default 10,000. */
  readonly capacity?: number | undefined;
  /** Maximum bytes of these deltas, as `bytesOf` counts; beyond it they are coalesced too. Default: unlimited. */
  readonly capacityBytes?: number | undefined;
  /** Returns the memory of an object in a delta, in bytes. Default: 0. */
  readonly bytesOf?: ((object: T | DeletedFinalStateUnknown<T>) => number) | undefined;
}

/**
 * Processes the deltas of one key. `isInInitialList`: the key was part of the first list. If it throws or rejects,
 * the deltas are put back.
 */
export type ProcessDeltas<T extends Keyed, Result> = (
  deltas: Deltas<T>,
  isInInitialList: boolean,
) => Result;
