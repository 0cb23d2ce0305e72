import { systemClock, type Timer } from "../../../src/base/clock.ts";
import { FakeClock } from "../../fake-clock.ts";

/** A clock for servers with real sockets: immediates run by themselves, and time passes with `advance` only. */
export class ManualTimers extends FakeClock {
  override setImmediate(callback: () => void): Timer {
    return systemClock.setImmediate(callback);
  }
}
