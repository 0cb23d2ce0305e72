import { setImmediate as nextTurn } from "node:timers/promises";
import { systemClock, type Timer } from "../base/clock.ts";
import { invalidRequest } from "../base/errors.ts";
import { endless, ManualClock, maxCallbacks } from "./manual-clock.ts";

/** Turns of the event loop in which a request and its response cross a loopback connection within one process. */
const turnsPerExchange = 10;

/** Resolves after these turns. */
export async function someTurns(): Promise<void> {
  for (let turns = 0; turns < turnsPerExchange; turns++) await nextTurn();
}

/**
 * A clock whose time passes only with `advance`: for a test service, and for clients, informers, queues and controllers,
 * whose backoffs, resyncs and delays then take no time. It starts at 0.
 *
 *     const clock = new TestClock();
 *     await using service = await startTestService({ resources: ["pods"], clock });
 *     await service.client.put("pods", "a", value, { ttlMs: 30_000 });
 *     await clock.advance(30_000); // the object has expired
 *
 * Sockets, promises and immediates go on by themselves. A timer with a delay of 0 fires in the next turn of the event loop.
 */
export class TestClock extends ManualClock {
  override setTimeout(callback: () => void, delayMs: number): Timer {
    return delayMs === 0 ? this.setImmediate(callback) : super.setTimeout(callback, delayMs);
  }

  setImmediate(callback: () => void): Timer {
    return systemClock.setImmediate(callback);
  }

  /**
   * Lets `ms` milliseconds pass. Timers that fall due fire in the order of their times, those set meanwhile included. After
   * each of these times the event loop goes on for some turns, so that what a timer began, such as a call to a service in the
   * process, can set the next one in time.
   *
   * Throws INVALID_REQUEST unless `ms` is a finite number of at least 0, and an Error if timers set each other endlessly.
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0 && ms < Number.POSITIVE_INFINITY)) {
      throw invalidRequest("ms", `ms is ${ms}: it must be a finite number, at least 0.`);
    }
    const end = this.time + ms;
    await someTurns();
    for (let fired = 0; this.fireNext(end); fired++) {
      if (fired === maxCallbacks) throw endless("timers");
      await someTurns();
    }
    this.moveTo(end);
  }
}
