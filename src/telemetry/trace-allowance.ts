import type { Clock } from "../base/clock.ts";
import { Rate } from "../server/limits/rate.ts";

/** Number of calls per second that are recorded because their clients record them: of each caller, and of all. */
const maxPerCaller = 100;
const maxInAll = 1_000;

/**
 * Bounds the calls that are recorded because their clients record their traces. Without it a client could have a span
 * exported, and spans at etcd recorded, for each of its calls.
 */
export class TraceAllowance {
  readonly #clock: Clock;
  readonly #perCaller: number;
  readonly #inAll: Rate;
  /** Those of callers that are forgotten are dropped with them. */
  readonly #ofCallers = new WeakMap<object, Rate>();
  #refused = 0;

  /** `servesWorkers`: the callers are workers of this service, which have bounded the calls of their clients. */
  constructor(clock: Clock, servesWorkers: boolean = false) {
    this.#clock = clock;
    this.#perCaller = servesWorkers ? maxInAll : maxPerCaller;
    this.#inAll = new Rate(clock, maxInAll);
  }

  /** Number of calls that were not recorded for lack of it. */
  get refused(): number {
    return this.#refused;
  }

  /** Takes a call of a caller. Returns whether it may be recorded. */
  take(caller: object): boolean {
    const isAllowed = this.#rateOf(caller).take() && this.#inAll.take();
    if (!isAllowed) this.#refused++;
    return isAllowed;
  }

  #rateOf(caller: object): Rate {
    let rate = this.#ofCallers.get(caller);
    if (rate === undefined) {
      rate = new Rate(this.#clock, this.#perCaller);
      this.#ofCallers.set(caller, rate);
    }
    return rate;
  }
}
