import { FakeClock } from "./fake-clock.ts";

/** A clock on which time also passes with work: each step of a test's work says how long it took. */
export class WorkClock extends FakeClock {
  #spent = 0;

  override now(): number {
    return super.now() + this.#spent;
  }

  /** Lets `ms` pass without firing timers or immediates. */
  spend(ms: number): void {
    this.#spent += ms;
  }
}
