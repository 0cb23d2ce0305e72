import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";

/** Number of members that are visited between two yields. */
const visitsPerStep = 64;

/** Visits all of its members at an interval, in time slices, with one timer for all of them, and no timer without members. */
export class Rounds<Member> {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #visit: (member: Member) => void;
  readonly #prepare: (() => Promise<void>) | undefined;
  readonly #members = new Set<Member>();
  /** The timer of the next round; undefined during a round, and without members. */
  #timer: Timer | undefined;
  #isOnRound = false;

  /** `prepare` is awaited before each round. It never rejects. */
  constructor(
    clock: Clock,
    intervalMs: number,
    visit: (member: Member) => void,
    prepare?: () => Promise<void>,
  ) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    this.#visit = visit;
    this.#prepare = prepare;
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
    this.#setTimer();
  }

  /** Idempotent. */
  delete(member: Member): void {
    this.#members.delete(member);
    if (this.#members.size === 0) this.close();
  }

  /** Makes no further round until a member is added. */
  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #setTimer(): void {
    if (this.#isOnRound) return;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#isOnRound = true;
      const prepared = this.#prepare?.();
      if (prepared === undefined) this.#begin();
      else void prepared.then(() => this.#begin());
    }, this.#intervalMs);
  }

  #begin(): void {
    runInTimeSlices(this.#clock, this.#visitAll());
  }

  *#visitAll(): Generator<void, void, void> {
    let visited = 0;
    for (const member of this.#members) {
      this.#visit(member);
      if (++visited % visitsPerStep === 0) yield;
    }
    this.#isOnRound = false;
    if (this.#members.size > 0) this.#setTimer();
  }
}
