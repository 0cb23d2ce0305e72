import { abortable } from "../../../base/abort.ts";
import {
  coalesceDeltas,
  coalescedLength,
  DeletedFinalStateUnknown,
  type Delta,
  type Deltas,
  type Keyed,
} from "./delta.ts";
import { KeyedQueue } from "./keyed-queue.ts";

/** What the consumer has made of the deltas that it took: an Indexer, for instance. */
export interface KnownObjects<T extends Keyed> {
  get(key: string): T | undefined;
  keys(): Iterable<string>;
}

export interface DeltaFIFOOptions<T extends Keyed> {
  readonly known: KnownObjects<T>;
  /** How many deltas are kept one by one; beyond that they fold, key by key. Default 10,000. */
  readonly capacity?: number | undefined;
  /** How many bytes of deltas are kept one by one, by `bytesOf`; beyond that they fold too. Default: any number. */
  readonly capacityBytes?: number | undefined;
  /** What an object of a delta takes in memory. Default: nothing. */
  readonly bytesOf?: ((object: T | DeletedFinalStateUnknown<T>) => number) | undefined;
}

/**
 * Takes the deltas of one key. `isInInitialList` tells whether the key was part of the first state. What it
 * throws, or rejects with, puts the deltas back.
 */
export type ProcessDeltas<T extends Keyed, Result> = (
  deltas: Deltas<T>,
  isInInitialList: boolean,
) => Result;

/** What has gathered of one key. */
interface PendingDeltas<T extends Keyed> {
  readonly key: string;
  /** Never empty. */
  deltas: Delta<T>[];
  /** Whether it is part of the first state. */
  isInitial: boolean;
}

/** What a consumer has taken, and what has gathered of that key since. */
interface InFlight<T extends Keyed> {
  readonly gathered: PendingDeltas<T>;
  since: PendingDeltas<T> | undefined;
}

const defaultCapacity = 10_000;

/**
 * Between who hears of changes and who makes something of them: per key all that happened, in order.
 *
 * A key has one place in the queue, which it takes with its first delta. It is handed out with everything
 * that has gathered, to one consumer: what comes of it meanwhile waits until that one is done. If that one
 * fails, the deltas go back, before what came since, and the key to the end of the queue.
 *
 * What is gone is not deleted twice. Above `capacity` deltas, or `capacityBytes`, each further one folds what waits of
 * its key: to four at the most, and to nothing if the consumer never knew the object and it is gone again. So what is
 * held is no more than that, and four deltas for each object that is there or that the consumer knows,
 * however many changes come and however slow the consumer is. What is lost by that is states in between.
 */
export class DeltaFIFO<T extends Keyed> {
  readonly #known: KnownObjects<T>;
  readonly #capacity: number;
  readonly #capacityBytes: number;
  readonly #bytesOf: (object: T | DeletedFinalStateUnknown<T>) => number;
  readonly #queue = new KeyedQueue<PendingDeltas<T>>();
  /** By key. */
  readonly #taken = new Map<string, InFlight<T>>();
  #pendingDeltas = 0;
  #pendingBytes = 0;
  #coalescedDeltas = 0;
  #isPopulated = false;
  /** How many keys of the first state have not been dealt with. */
  #initial = 0;
  /** Resolves when the next key comes. */
  #arrival: PromiseWithResolvers<void> | undefined;

  constructor(options: DeltaFIFOOptions<T>) {
    this.#known = options.known;
    this.#capacity = options.capacity ?? defaultCapacity;
    this.#capacityBytes = options.capacityBytes ?? Infinity;
    this.#bytesOf = options.bytesOf ?? (() => 0);
  }

  /** How many keys wait to be taken. */
  get length(): number {
    return this.#queue.length;
  }

  /** How many deltas wait, of all keys, those taken not counted. */
  get pendingDeltas(): number {
    return this.#pendingDeltas;
  }

  /** What these take, by `bytesOf`. */
  get pendingBytes(): number {
    return this.#pendingBytes;
  }

  /** How many deltas were folded away for lack of room, so far. */
  get coalescedDeltas(): number {
    return this.#coalescedDeltas;
  }

  /** Whether the first state has come and all of it has been dealt with. */
  get hasSynced(): boolean {
    return this.#isPopulated && this.#initial === 0;
  }

  /** Drops all that waits, for good: what it was is not handed out, and it does not become synced by that. */
  clear(): void {
    this.#queue.clear();
    for (const taken of this.#taken.values()) taken.since = undefined;
    this.#pendingDeltas = 0;
    this.#pendingBytes = 0;
  }

  /** The object as it is by all that has been heard of it, here and by the consumer; undefined if it is gone. */
  get(key: string): T | undefined {
    const taken = this.#taken.get(key);
    const gathered = this.#queue.get(key) ?? taken?.since ?? taken?.gathered;
    const newest = gathered?.deltas.at(-1);
    if (newest === undefined) return this.#known.get(key);
    return newest.type === "Deleted" ? undefined : newest.object;
  }

  add(object: T): void {
    this.#append(object.key, { type: "Added", object });
  }

  update(object: T): void {
    this.#append(object.key, { type: "Updated", object });
  }

  /** `object` as it last was. Nothing happens if no such object is there, by all that has been heard of it. */
  delete(object: T): void {
    if (this.get(object.key) !== undefined) this.#append(object.key, { type: "Deleted", object });
  }

  /**
   * The whole state: each of these objects, and the deletion of whatever was there before and is not among
   * them, of which nobody knows in which state it went.
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

  /** Hands out every known object again, but those of which something is under way anyway. */
  resync(): void {
    for (const key of this.#known.keys()) {
      if (this.#queue.get(key) !== undefined || this.#taken.has(key)) continue;
      const object = this.#known.get(key);
      if (object !== undefined) this.#append(key, { type: "Sync", object });
    }
  }

  /**
   * Hands the key at the front to `process` and returns what that does; undefined if no key waits. Throws
   * what it throws, and then the deltas are back.
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
   * Waits for a key and hands it to `process`. Resolves to what that does. Rejects with what that throws,
   * and then the deltas are back; or with the signal's reason if it is aborted while no key waits.
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

  /** Where deltas of this key gather now. */
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
    // Whoever failed may have kept what it was handed.
    gathered.deltas = [...gathered.deltas, ...(since?.deltas ?? [])];
    if (since?.isInitial === true) gathered.isInitial = true;
    this.#enqueue(gathered);
    this.#makeRoom(gathered);
  }
}
