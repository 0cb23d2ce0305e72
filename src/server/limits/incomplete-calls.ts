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
    if (calls.size > maxIncompleteCallsPerCaller) {
      this.#evictOldest(calls, maxIncompleteCallsPerCaller, caller.title);
    } else if (this.#size > maxIncompleteCalls) {
      this.#evictOldest(this.#most(), maxIncompleteCalls, "all callers together");
    }
    return counted;
  }

  /** The calls of the caller with the most. */
  #most(): ReadonlySet<Counted> | undefined {
    let most: ReadonlySet<Counted> | undefined;
    for (const calls of this.#byCaller.values()) {
      if (most === undefined || calls.size > most.size) most = calls;
    }
    return most;
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
    if (calls.size === 0) this.#byCaller.delete(caller);
  };
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
