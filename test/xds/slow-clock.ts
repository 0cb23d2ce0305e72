import { FakeClock } from "../fake-clock.ts";

/** On it everything takes so long that work in time slices is done a step at a time. */
export class SlowClock extends FakeClock {
  #passed = 0;

  override now(): number {
    return super.now() + ++this.#passed;
  }

  /** Fires the timers that are due within `ms`, and no immediates. */
  fireDue(ms: number): void {
    while (this.fireNext(this.time + ms));
  }
}
