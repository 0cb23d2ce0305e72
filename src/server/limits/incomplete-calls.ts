import type { Caller } from "./callers.ts";

/** The bounds of calls whose request has not arrived completely. */
export interface IncompleteCallBounds {
  /** Maximum number of those of all callers. */
  readonly maxIncompleteCalls: number;
  /** Maximum number of those of one caller, on all of its connections. */
  readonly maxIncompleteCallsPerCaller: number;
}

/** A call whose request has not arrived completely. */
export interface IncompleteCall {
  /** Its request has arrived, or it has ended. Idempotent, also after it was evicted. */
  release(): void;
}

/**
 * Counts and bounds the calls whose request has not arrived completely: a client opens one with some tens of bytes, and it
 * takes 7 KiB of memory here. Pools bound their bytes by connection; this bounds their number by caller, an identity or an
 * anonymous host, on all of its connections, and of all callers together. At a bound the caller with the most loses its
 * oldest one: requests of clients that send them are complete within a few turns, so it is one that was left as it was.
 */
export class IncompleteCalls {
  readonly #bounds: IncompleteCallBounds;
  /** By caller, the oldest first. No set is empty. */
  readonly #byCaller = new Map<Caller, Set<Counted>>();
  /** The same by their number, so that the caller with the most is found without looking at all. No set is empty. */
  readonly #bySize = new Map<number, Set<ReadonlySet<Counted>>>();
  /** The number of calls of the caller with the most. */
  #most = 0;
  #size = 0;
  #evictions = 0;

  constructor(bounds: IncompleteCallBounds) {
    this.#bounds = bounds;
  }

  /** Number of calls that are counted. */
  get size(): number {
    return this.#size;
  }

  /** Number of calls that have been ended to make room. */
  get evictions(): number {
    return this.#evictions;
  }

  /**
   * Counts a call of a caller until it is released. `evict` is called once, with a sentence that says which bound was
   * reached, if the call has to make room for another; it may be called before this returns.
   */
  add(caller: Caller, evict: (why: string) => void): IncompleteCall {
    const { maxIncompleteCalls, maxIncompleteCallsPerCaller } = this.#bounds;
    const counted = new Counted(caller, evict, this.#release);
    let calls = this.#byCaller.get(caller);
    if (calls === undefined) {
      calls = new Set();
      this.#byCaller.set(caller, calls);
    }
    calls.add(counted);
    this.#size++;
    this.#sizeChanged(calls, calls.size - 1);
    if (calls.size > maxIncompleteCallsPerCaller) {
      this.#evictOldest(calls, maxIncompleteCallsPerCaller, caller.title);
    } else if (this.#size > maxIncompleteCalls) {
      const [most] = this.#bySize.get(this.#most) ?? [];
      this.#evictOldest(most, maxIncompleteCalls, "all callers together");
    }
    return counted;
  }

  #evictOldest(calls: ReadonlySet<Counted> | undefined, limit: number, whose: string): void {
    for (const oldest of calls ?? []) {
      this.#evictions++;
      oldest.release();
      oldest.evict(`The limit of calls whose request has not arrived, of ${whose}, is ${limit}.`);
      return;
    }
  }

  readonly #release = (counted: Counted): void => {
    const { caller } = counted;
    const calls = this.#byCaller.get(caller);
    if (calls?.delete(counted) !== true) return;
    this.#size--;
    this.#sizeChanged(calls, calls.size + 1);
    if (calls.size === 0) this.#byCaller.delete(caller);
  };

  /** The number of a caller's calls has changed by one. */
  #sizeChanged(calls: ReadonlySet<Counted>, before: number): void {
    const { size } = calls;
    const equals = this.#bySize.get(before);
    equals?.delete(calls);
    const isLast = equals?.size === 0;
    if (isLast) this.#bySize.delete(before);
    if (size > this.#most || (isLast && before === this.#most)) this.#most = size;
    if (size === 0) return;
    const others = this.#bySize.get(size);
    if (others === undefined) this.#bySize.set(size, new Set([calls]));
    else others.add(calls);
  }
}

class Counted implements IncompleteCall {
  readonly caller: Caller;
  readonly evict: (why: string) => void;
  readonly #onReleased: (counted: Counted) => void;

  constructor(
    caller: Caller,
    evict: (why: string) => void,
    onReleased: (counted: Counted) => void,
  ) {
    this.caller = caller;
    this.evict = evict;
    this.#onReleased = onReleased;
  }

  release(): void {
    this.#onReleased(this);
  }
}
