import { systemClock, type Timer } from "../../../src/base/clock.ts";
import { FakeClock } from "../../fake-clock.ts";

/** For servers over real sockets: what is at hand is dealt with, but time passes only when told to. */
export class ManualTimers extends FakeClock {
  override setImmediate(callback: () => void): Timer {
    return systemClock.setImmediate(callback);
  }
}
