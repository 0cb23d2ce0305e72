import { FakeClock } from "../fake-clock.ts";

/** A clock that advances by a millisecond each time it is read. */
export class BusyClock extends FakeClock {
  #looks = 0;

  override now(): number {
    return super.now() + this.#looks++;
  }
}
