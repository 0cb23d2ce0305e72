import { setImmediate as nextTurn } from "node:timers/promises";
import { systemClock, type Timer } from "../base/clock.ts";
import { invalidRequest } from "../base/errors.ts";
import { ManualClock } from "./manual-clock.ts";

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
 * Sockets, promises and immediates do not wait for it. A timer with a delay of 0 fires in the next turn of the event loop.
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
   * each of these times the event loop runs for some turns, so that what a timer began, such as a call to a service in the
   * process, can set the next one in time.
   *
   * Rejects with INVALID_REQUEST unless `ms` is a finite number of at least 0.
   */
  async advance(ms: number): Promise<void> {
    if (!(ms >= 0 && ms < Number.POSITIVE_INFINITY)) {
      throw invalidRequest("ms", `ms is ${ms}: it must be a finite number, at least 0.`);
    }
    const end = this.time + ms;
    await someTurns();
    while (this.fireNext(end)) await someTurns();
    this.moveTo(end);
  }
}
