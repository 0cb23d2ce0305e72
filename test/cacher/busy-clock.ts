import { FakeClock } from "../fake-clock.ts";

/** Time passes as it is looked at: each look costs a millisecond. */
export class BusyClock extends FakeClock {
  #looks = 0;

  override now(): number {
    return super.now() + this.#looks++;
  }
}
