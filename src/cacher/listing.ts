import { compareKeys } from "../storage/key-order.ts";
import type { History } from "./history.ts";
import { costOf, type KeptPiece, type KeptPieces } from "./kept-pieces.ts";
import { type Run, restOf } from "./run.ts";

/** A listing that is further behind than this, in events, is begun anew. */
const maxEventsBehind = 10_000;

/** Makes the run after a key, up to and including `end` if that is not too far away. */
type Take = (after: string | undefined, end?: string) => Run;

interface KeptRun extends Run, KeptPiece {
  /** Whether something has changed in it since it was taken. */
  isStale: boolean;
}

/** Where a listing is found while runs of it are kept, and no longer. */
export interface ListingRegistry {
  /** A first run is kept. */
  filled(listing: Listing): void;
  /** No run is kept any more. */
  emptied(listing: Listing): void;
}

/** The runs of one listing, none of which overlaps another. */
export class Listing {
  readonly #name: string;
  readonly #registry: ListingRegistry;
  /** By the key that they begin after; empty for the first. */
  readonly #runs = new Map<string, KeptRun>();
  /** The same keys in order. */
  readonly #starts: string[] = [];
  /**
   * Every change up to this revision is known. Not a node of history: nodes are linked forward, so that a
   * listing that nobody asks for any more would keep all that comes after.
   */
  #asOf: number;

  /** `name` is what is asked for. */
  constructor(name: string, asOf: number, registry: ListingRegistry) {
    this.#name = name;
    this.#asOf = asOf;
    this.#registry = registry;
  }

  /** Learns which runs have changed up to `revision`, the newest of the history. */
  catchUp(history: History, revision: number): void {
    const node = history.find(this.#asOf);
    this.#asOf = revision;
    if (node === undefined || history.newest.sequence - node.sequence > maxEventsBehind) {
      for (const run of this.#runs.values()) run.isStale = true;
      return;
    }
    for (let { next } = node; next !== undefined; { next } = next) {
      if (next.event !== undefined) this.#touch(next.event.object.key);
    }
  }

  /** What follows a key. */
  get(after: string | undefined, take: Take, kept: KeptPieces): Run {
    const key = after ?? "";
    const { start, run, next } = this.#find(key);
    if (run === undefined) return this.#keep(key, take(after, next), kept);
    if (!run.isStale) return share(run, start, key, kept);
    // The new one ends where the next begins, so that all that follow still do.
    this.#keep(start, take(start === "" ? undefined : start, next), kept);
    return this.get(after, take, kept);
  }

  /**
   * What followed a key in a past state, from which the present one differs by these keys only. `take` takes
   * from the past one.
   */
  getPast(
    after: string | undefined,
    touched: readonly string[],
    take: Take,
    kept: KeptPieces,
  ): Run {
    const key = after ?? "";
    const { start, run } = this.#find(key);
    if (run === undefined) return take(after);
    const change = touched[countUpTo(touched, start)];
    const isSame =
      change === undefined || (run.last !== undefined && compareKeys(change, run.last) > 0);
    return isSame && !run.isStale ? share(run, start, key, kept) : take(after, run.last);
  }

  /** Forgets the run that begins there: for those who keep it. */
  delete(at: string): boolean {
    const index = this.#indexOf(at);
    if (this.#starts[index] !== at) return false;
    this.#starts.splice(index, 1);
    this.#runs.delete(at);
    if (this.#runs.size === 0) this.#registry.emptied(this);
    return true;
  }

  /** Has a run to keep: for those who keep it. */
  set(at: string, run: KeptRun): void {
    if (this.#runs.size === 0) this.#registry.filled(this);
    if (!this.#runs.has(at)) this.#starts.splice(this.#indexOf(at) + 1, 0, at);
    this.#runs.set(at, run);
  }

  /** The run that has what follows a key, if there is one, and where that and the next begin. */
  #find(key: string): { start: string; run: KeptRun | undefined; next: string | undefined } {
    const index = this.#indexOf(key);
    const start = this.#starts[index] ?? "";
    const run = index < 0 ? undefined : this.#runs.get(start);
    const covers = start === key || run?.last === undefined || compareKeys(key, run.last) < 0;
    return { start, run: covers ? run : undefined, next: this.#starts[index + 1] };
  }

  #touch(key: string): void {
    const index = this.#indexOf(key);
    // What begins after the key itself does not hold it.
    const start = this.#starts[this.#starts[index] === key ? index - 1 : index];
    const run = start === undefined ? undefined : this.#runs.get(start);
    if (run === undefined) return;
    if (run.last === undefined || compareKeys(key, run.last) <= 0) run.isStale = true;
  }

  #keep(at: string, run: Run, kept: KeptPieces): Run {
    const before = this.#runs.get(at);
    const { items, weight, scanned, last } = run;
    const cost = costOf(weight + at.length + this.#name.length);
    const keptRun: KeptRun = {
      ...{ items, weight, scanned, last },
      ...{ among: this, at, cost, isFresh: true, isStale: false },
    };
    if (before === undefined) kept.touch(keptRun);
    else kept.replace(before, keptRun);
    return keptRun;
  }

  /** Of the last run that begins at or before a key; -1 if there is none. */
  #indexOf(key: string): number {
    return countUpTo(this.#starts, key) - 1;
  }
}

/** The run, which begins after `start`, or what of it follows a later key. */
function share(run: KeptRun, start: string, key: string, kept: KeptPieces): Run {
  kept.touch(run);
  return start === key ? run : restOf(run, key);
}

/** How many of the keys, which are in order, are at or before this one. */
function countUpTo(keys: readonly string[], key: string): number {
  let low = 0;
  let high = keys.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (compareKeys(keys[middle] as string, key) <= 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
