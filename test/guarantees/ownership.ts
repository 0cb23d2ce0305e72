/** What a process believes at a moment: that it alone has this lock, leadership or slot. */
export interface Belief {
  /** The lock, the election or the slot. */
  readonly what: string;
  readonly owner: string;
  readonly fencingToken: number;
}

/** When a thing was seen with an owner. */
interface Seen {
  ownedAt: number;
  token: number;
  owner: string;
}

/**
 * Checks what processes believe to own, from samples in the order of one clock that all of them share:
 *
 * - no two of them own a thing at the same time,
 * - no two of them ever own it with one fencing token, and no later one with a lower one,
 * - no thing is without an owner for longer than a bound, while there is a process that could own it.
 */
export class OwnershipChecker {
  readonly violations: string[] = [];
  /** The longest time that a thing was without an owner, in milliseconds. */
  longestGapMs = 0;
  readonly #maxGapMs: number;
  readonly #seen = new Map<string, Seen>();

  /** `maxGapMs`: Infinity if things may be without an owner. */
  constructor(maxGapMs: number) {
    this.#maxGapMs = maxGapMs;
  }

  /**
   * Adds a sample. `things` are those that must have owners from now on; with none, the time up to this sample does not count,
   * as no process could own anything.
   */
  sample(now: number, beliefs: Iterable<Belief>, things: Iterable<string>): void {
    const owners = new Map<string, Belief>();
    for (const belief of beliefs) this.#believed(now, belief, owners);
    const expected = new Set(things);
    if (expected.size === 0) for (const seen of this.#seen.values()) seen.ownedAt = now;
    for (const what of expected) {
      const seen = this.#seen.get(what);
      if (seen === undefined) this.#seen.set(what, { ownedAt: now, token: 0, owner: "" });
      else if (!owners.has(what)) this.#missed(now, what, seen);
    }
  }

  #believed(now: number, belief: Belief, owners: Map<string, Belief>): void {
    const { what, owner, fencingToken } = belief;
    const other = owners.get(what);
    if (other !== undefined) this.#violated(now, `${what} is owned by ${other.owner} and ${owner}`);
    owners.set(what, belief);
    const seen = this.#seen.get(what) ?? { ownedAt: now, token: 0, owner };
    if (fencingToken < seen.token) {
      this.#violated(now, `${what}: ${owner} has token ${fencingToken} after ${seen.token}`);
    }
    if (fencingToken === seen.token && owner !== seen.owner) {
      this.#violated(now, `${what}: ${owner} has the token ${fencingToken} of ${seen.owner}`);
    }
    this.#seen.set(what, { ownedAt: now, token: Math.max(seen.token, fencingToken), owner });
  }

  #missed(now: number, what: string, seen: Seen): void {
    const gapMs = now - seen.ownedAt;
    this.longestGapMs = Math.max(this.longestGapMs, gapMs);
    if (gapMs <= this.#maxGapMs) return;
    this.#violated(now, `${what} has been without an owner for ${Math.round(gapMs)} ms`);
    seen.ownedAt = now;
  }

  #violated(now: number, what: string): void {
    if (this.violations.length < 20) this.violations.push(`At ${Math.round(now)} ms: ${what}.`);
  }
}

/** A write that the store accepted, by a process that had named its fencing token in a compare. */
export interface GuardedWrite {
  readonly revision: number;
  readonly owner: string;
  readonly fencingToken: number;
}

/** Why the accepted writes of the owners of one thing are not those of one owner after another; empty: they are. */
export function fencingViolations(writes: readonly GuardedWrite[]): string[] {
  const violations: string[] = [];
  const owners = new Map<number, string>();
  let last = 0;
  for (const write of writes.toSorted((one, other) => one.revision - other.revision)) {
    const { revision, owner, fencingToken } = write;
    const first = owners.get(fencingToken) ?? owner;
    owners.set(fencingToken, first);
    if (first !== owner) violations.push(`${first} and ${owner} write with token ${fencingToken}.`);
    if (fencingToken < last) {
      violations.push(
        `At revision ${revision} ${owner} writes with ${fencingToken} after ${last}.`,
      );
    }
    last = Math.max(last, fencingToken);
  }
  return violations;
}
