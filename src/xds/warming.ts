import type { Clock, Timer } from "../base/clock.ts";
import type { XdsSubscription } from "./subscription.ts";

/**
 * How long a client may take at most to warm clusters before routes to them are sent, in milliseconds. Less than 15 s: after that
 * a client takes a route that it has asked for as absent.
 */
const maxWarmingMs = 10_000;

/** Time in which a client that has confirmed clusters asks for their endpoints, in milliseconds. */
const askingMs = 25;

/**
 * Whether a client is warming clusters: it has been sent some, and has not confirmed them, or their endpoints. A route that comes
 * before that fails requests. A client that confirms nothing counts as warm after ten seconds.
 */
export class Warming {
  readonly #clock: Clock;
  readonly #onWarm: () => void;
  /** When it is over in any case, in the clock's milliseconds; undefined: the client is warm. */
  #until: number | undefined;
  /** The nonce of the clusters that it has to confirm. */
  #clusters = 0;
  /** When the client has asked for the endpoints of what it has confirmed. */
  #askedAt = Infinity;
  /** The nonce of the endpoints that it has to confirm; undefined: they have not all been sent. Later ones are changes. */
  #endpoints: number | undefined;
  #timer: Timer | undefined;
  /** What the timer waits for. */
  #wakesAt = 0;

  /** `onWarm` is called when it may be over. */
  constructor(clock: Clock, onWarm: () => void) {
    this.#clock = clock;
    this.#onWarm = onWarm;
  }

  /** Clusters are sent, with this nonce. `endpoints`: as of `isActive`. */
  begin(nonce: number, endpoints: XdsSubscription | undefined): void {
    if (!this.isActive(endpoints)) this.#until = this.#clock.now() + maxWarmingMs;
    this.#clusters = nonce;
    this.#askedAt = Infinity;
    this.#endpoints = undefined;
  }

  /** The client has confirmed something, and clusters up to this nonce. */
  confirmed(clusters: number): void {
    if (this.#until === undefined) return;
    if (this.#askedAt === Infinity && clusters >= this.#clusters) {
      this.#askedAt = this.#clock.now() + askingMs;
    }
    this.#onWarm();
  }

  /**
   * Whether it is warming now. Then `onWarm` follows. `endpoints`: what it asks for of them, which has nothing to send; undefined: it
   * asks for none.
   */
  isActive(endpoints: XdsSubscription | undefined): boolean {
    if (this.#until === undefined) return false;
    const now = this.#clock.now();
    if (now >= this.#askedAt) this.#endpoints ??= endpoints?.sent?.number ?? 0;
    const isWarm = this.#endpoints !== undefined && (endpoints?.confirmed ?? 0) >= this.#endpoints;
    if (now >= this.#until || isWarm) {
      this.close();
      return false;
    }
    this.#wakeAt(now < this.#askedAt ? Math.min(this.#askedAt, this.#until) : this.#until);
    return true;
  }

  /** Idempotent. */
  close(): void {
    this.#until = undefined;
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #wakeAt(at: number): void {
    if (this.#timer !== undefined && this.#wakesAt === at) return;
    this.#timer?.cancel();
    this.#wakesAt = at;
    // A timer has whole milliseconds, and may fire one early: then the next one follows.
    const ms = Math.max(1, Math.ceil(at - this.#clock.now()));
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      this.#onWarm();
    }, ms);
  }
}
