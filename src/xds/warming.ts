import type { Clock, Timer } from "../base/clock.ts";
import type { XdsSubscription } from "./subscription.ts";

/** How long a client may take at most to warm clusters before routes to them are sent, in milliseconds. */
const maxWarmingMs = 1_000;

/** Time in which a client that has confirmed clusters asks for their endpoints, in milliseconds. */
const askingMs = 25;

/**
 * Whether a client is warming clusters: it has been sent some, and has not confirmed them, or their endpoints. A route that comes
 * before that fails requests. A client that confirms nothing counts as warm after a second.
 */
export class Warming {
  readonly #clock: Clock;
  readonly #onWarm: () => void;
  /** When it is over in any case, in the clock's milliseconds; undefined: the client is warm. */
  #until: number | undefined;
  /** When the client has asked for the endpoints of what it has confirmed. */
  #askedAt = Infinity;
  #timer: Timer | undefined;

  /** `onWarm` is called when it may be over. */
  constructor(clock: Clock, onWarm: () => void) {
    this.#clock = clock;
    this.#onWarm = onWarm;
  }

  /** Clusters were sent. Further ones do not prolong it: routes would wait for as long as there are new clusters. */
  begin(): void {
    const now = this.#clock.now();
    this.#until ??= now + maxWarmingMs;
    this.#askedAt = Infinity;
    this.#wake(Math.max(1, this.#until - now));
  }

  /** The client has confirmed something. */
  confirmed(clusters: XdsSubscription): void {
    if (this.#until === undefined) return;
    if (this.#askedAt === Infinity && clusters.isConfirmed) {
      this.#askedAt = this.#clock.now() + askingMs;
      this.#wake(askingMs);
    } else {
      this.#onWarm();
    }
  }

  /** Whether it is warming now. `endpoints`: undefined if it asks for none. */
  isActive(endpoints: XdsSubscription | undefined): boolean {
    if (this.#until === undefined) return false;
    const now = this.#clock.now();
    const areComplete = endpoints === undefined || (endpoints.isConfirmed && !endpoints.hasPending);
    if (now < this.#until && (now < this.#askedAt || !areComplete)) return true;
    this.close();
    return false;
  }

  /** Idempotent. */
  close(): void {
    this.#until = undefined;
    this.#timer?.cancel();
  }

  /** The bound of all stays: after a shorter time it waits for the rest. */
  #wake(afterMs: number): void {
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimeout(() => {
      const until = this.#until;
      this.#onWarm();
      if (until !== undefined && this.#until === until) {
        const leftMs = Math.max(1, until - this.#clock.now());
        this.#timer = this.#clock.setTimeout(this.#onWarm, leftMs);
      }
    }, afterMs);
  }
}
