import type { Clock, Timer } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { runInTimeSlices, type TimeSlicedWork } from "../../base/event-loop-turns.ts";
import type { CallerLimits } from "./caller-limits.ts";
import type { Caller } from "./callers.ts";

/** Interval at which leases that have ended are looked for, in milliseconds. */
const sweepMs = 5_000;

/** Number of leases that are looked at between two yields. */
const visitsPerStep = 256;

interface GrantedLease {
  readonly caller: Caller;
  /** When it ends if it is not renewed, as far as it is known here, in the clock's milliseconds. */
  endsAt: number;
}

/**
 * The leases that this server has granted, by caller, to bound their number. One counts until the server learns that it has
 * ended, or has not renewed it for its length: others may keep it alive, which is not known here.
 */
export class GrantedLeases {
  readonly #clock: Clock;
  readonly #limits: CallerLimits;
  readonly #leases = new Map<bigint, GrantedLease>();
  #sweeping: Timer | undefined;
  #isStopped = false;

  constructor(clock: Clock, limits: CallerLimits) {
    this.#clock = clock;
    this.#limits = limits;
  }

  /** Number of leases. */
  get size(): number {
    return this.#leases.size;
  }

  /** Why the caller may not be granted one more; undefined: it may, and counts until `granted` or `failed`. */
  begin(caller: Caller): WatchFanoutError | undefined {
    const refusal = this.#limits.leaseRefusal(caller, this.size);
    if (refusal === undefined) caller.leases++;
    return refusal;
  }

  /** After `begin`: nothing was granted. */
  failed(caller: Caller): void {
    caller.leases--;
  }

  /** After `begin`. `ttlMs`: its length. */
  granted(caller: Caller, lease: bigint, ttlMs: number): void {
    this.#leases.set(lease, { caller, endsAt: this.#clock.now() + ttlMs });
    this.#sweepLater();
  }

  /** A lease lasts for `restMs` from now. */
  renewed(lease: bigint, restMs: number): void {
    const known = this.#leases.get(lease);
    if (known !== undefined) known.endsAt = this.#clock.now() + restMs;
  }

  /** Idempotent. */
  ended(lease: bigint): void {
    const known = this.#leases.get(lease);
    if (known === undefined) return;
    known.caller.leases--;
    this.#leases.delete(lease);
  }

  /** Looks no longer for leases that have ended, also not for those that open calls are still granted. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    this.#sweeping?.cancel();
  }

  #sweepLater(): void {
    if (this.#isStopped) return;
    this.#sweeping ??= this.#clock.setTimeout(
      () => runInTimeSlices(this.#clock, this.#sweep()),
      sweepMs,
    );
  }

  *#sweep(): TimeSlicedWork<void> {
    let visited = 0;
    for (const [lease, { endsAt }] of this.#leases) {
      if (endsAt <= this.#clock.now()) this.ended(lease);
      if (++visited % visitsPerStep === 0) yield;
    }
    this.#sweeping = undefined;
    if (this.size > 0) this.#sweepLater();
  }
}
