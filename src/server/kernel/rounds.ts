import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";

/** How the members are visited. */
export interface Round<Member> {
  readonly intervalMs: number;
  readonly visit: (member: Member) => void;
  /** Number of members that are visited between two yields. */
  readonly visitsPerStep: number;
  /** Awaited before each round. Never rejects. */
  readonly prepare?: () => Promise<void>;
}

/** Visits all of its members at an interval, in time slices, with one timer for all of them, and no timer without members. */
export class Rounds<Member> {
  readonly #clock: Clock;
  readonly #round: Round<Member>;
  readonly #members = new Set<Member>();
  /** The timer of the next round; undefined during a round, and without members. */
  #timer: Timer | undefined;
  #isOnRound = false;
  #isClosed = false;

  constructor(clock: Clock, round: Round<Member>) {
    this.#clock = clock;
    this.#round = round;
  }

  /** Number of members. */
  get size(): number {
    return this.#members.size;
  }

  [Symbol.iterator](): Iterator<Member> {
    return this.#members.values();
  }

  add(member: Member): void {
    this.#members.add(member);
    this.#isClosed = false;
    this.#setTimer();
  }

  /** Idempotent. */
  delete(member: Member): void {
    this.#members.delete(member);
    if (this.#members.size === 0) this.close();
  }

  /** Makes no further round until a member is added. */
  close(): void {
    this.#isClosed = true;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #setTimer(): void {
    if (this.#isOnRound) return;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#isOnRound = true;
      const prepared = this.#round.prepare?.();
      if (prepared === undefined) this.#begin();
      else void prepared.then(() => this.#begin());
    }, this.#round.intervalMs);
  }

  #begin(): void {
    runInTimeSlices(this.#clock, this.#visitAll());
  }

  *#visitAll(): Generator<void, void, void> {
    const { visit, visitsPerStep } = this.#round;
    let visited = 0;
    for (const member of this.#members) {
      visit(member);
      if (++visited % visitsPerStep === 0) yield;
    }
    this.#isOnRound = false;
    if (!this.#isClosed) this.#setTimer();
  }
}
