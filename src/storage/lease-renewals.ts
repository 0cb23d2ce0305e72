import type { Clock, Timer } from "../base/clock.ts";
import { toError, upstreamUnavailable, WatchFanoutError } from "../base/errors.ts";
import { Fifo } from "../base/fifo.ts";
import { abortable } from "../base/wait.ts";
import { Renewal, RenewalRequest } from "./lease-renewal.ts";

/** A stream of renewals to a store. */
export interface RenewalStream {
  /** Sends renewals. Their outcomes come in the same order. */
  send(leases: readonly bigint[]): void;
  /** Ends it; nothing of it is received any more. `hasStalled`: since it did not answer. Idempotent. */
  close(hasStalled: boolean): void;
}

/** What a stream has received. */
export interface RenewalListener {
  /** The next outcomes: how long the lease lasts from when it was sent, in milliseconds, or why it was not renewed. */
  renewed(outcomes: readonly (number | Error)[]): void;
  /** The stream has ended. With UPSTREAM_UNAVAILABLE another one is opened, otherwise each renewal gets the error. */
  ended(error: Error): void;
}

export interface LeaseRenewalsOptions {
  readonly clock: Clock;
  /** Opens a stream. The listener may be called before this resolves. Rejects as `RenewalListener.ended`. */
  readonly open: (listener: RenewalListener) => Promise<RenewalStream>;
  /** How long a renewal may take, in milliseconds; then it has UPSTREAM_UNAVAILABLE. */
  readonly timeoutMs: number;
}

/** How long renewals wait for others, to be sent together, in milliseconds. */
const gatherMs = 5;

/**
 * Minimum time between two renewals of a lease, in milliseconds: a third of the shortest lease. One that is asked for
 * earlier waits for that long, and is then shared by all that were asked for meanwhile.
 */
const intervalMs = 300;

/** How long a stream may send nothing while an outcome is outstanding, in milliseconds. */
const silenceMs = 2_000;

/** How often deadlines are looked at, in milliseconds. */
const checkMs = 250;

/** The pause before a stream is opened again that did not last, in milliseconds. */
const reopenMs = 100;

/** Maximum number of renewals that were sent and have no outcome. */
const maxInFlight = 1_000;

/** Maximum number of renewals that wait, and of leases whose last renewal is known. */
const maxRenewals = 100_000;

/**
 * Renews leases on one stream to their store, for all callers. Renewals of a lease that were not sent yet are one, and
 * those that are asked for within 5 ms are sent together. None is answered by a renewal that was sent before it was
 * asked for: the lease may have ended since. Requests take turns, so a large one does not delay a small one.
 *
 * When the stream breaks, or answers nothing for 2 s, what has no outcome is sent again on another one.
 */
export class LeaseRenewals {
  readonly #options: LeaseRenewalsOptions;
  /** Those that were not sent, by lease: the ready and the delayed ones. */
  readonly #waiting = new Map<bigint, Renewal>();
  /** The requests with renewals that are ready, each once. They take turns. */
  readonly #ready = new Fifo<RenewalRequest>();
  readonly #delayed = new Fifo<Renewal>();
  readonly #inFlight = new Fifo<Renewal>();
  /** When leases were renewed last, within the interval, the oldest first. */
  readonly #recent = new Map<bigint, number>();
  #stream: RenewalStream | undefined;
  /** That of the current stream: what others report is dropped. */
  #listener: RenewalListener | undefined;
  /** When the stream has received something last, or was opened. */
  #heardAt = 0;
  #failure: Error | undefined;
  #gathering: Timer | undefined;
  #delaying: Timer | undefined;
  #checking: Timer | undefined;
  #reopening: Timer | undefined;
  #closed: Error | undefined;

  /** Opens nothing before the first renewal. */
  constructor(options: LeaseRenewalsOptions) {
    this.#options = options;
  }

  /** Number of renewals without an outcome. */
  get size(): number {
    return this.#waiting.size + this.#inFlight.length;
  }

  /** Number of requests with renewals that wait to be sent. */
  get requests(): number {
    return this.#ready.length;
  }

  /** See `Leases.keepAlive`. */
  renew(leases: readonly bigint[], signal?: AbortSignal): Promise<readonly (number | Error)[]> {
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    if (this.#closed !== undefined) return Promise.resolve(leases.map(() => this.#closed as Error));
    if (leases.length === 0) return Promise.resolve([]);
    const request = new RenewalRequest(leases.length);
    for (const [position, lease] of leases.entries()) this.#add(lease, request, position);
    this.#gathering ??= this.#options.clock.setTimeout(() => this.#gathered(), gatherMs);
    this.#check();
    return abortable(request.answer.promise, signal);
  }

  /** Ends the stream; each renewal without an outcome, and each later one, gets the error. Idempotent. */
  close(error: Error): void {
    this.#closed = error;
    for (const timer of [this.#gathering, this.#delaying, this.#checking, this.#reopening]) {
      timer?.cancel();
    }
    this.#drop(false);
    this.#failAll(error);
  }

  #add(lease: bigint, request: RenewalRequest, position: number): void {
    const known = this.#waiting.get(lease);
    if (known !== undefined) {
      known.add(request, position);
      return;
    }
    if (this.size >= maxRenewals) {
      request.settle(position, tooManyRenewals());
      return;
    }
    const now = this.#options.clock.now();
    const renewal = new Renewal(lease, request, now);
    renewal.add(request, position);
    this.#waiting.set(lease, renewal);
    const renewedAt = this.#recent.get(lease);
    if (renewedAt === undefined || now - renewedAt >= intervalMs) {
      this.#makeReady(renewal);
      return;
    }
    renewal.dueAt = now + intervalMs;
    this.#delayed.push(renewal);
    this.#delay();
  }

  #gathered(): void {
    this.#gathering = undefined;
    this.#send();
  }

  #delay(): void {
    const next = this.#delayed.at(0);
    if (next === undefined) return;
    const { clock } = this.#options;
    this.#delaying ??= clock.setTimeout(
      () => {
        this.#delaying = undefined;
        const now = clock.now();
        for (let due = this.#delayed.at(0); due !== undefined && due.dueAt <= now; ) {
          this.#delayed.shift();
          this.#makeReady(due);
          due = this.#delayed.at(0);
        }
        this.#delay();
        this.#send();
      },
      Math.max(0, next.dueAt - clock.now()),
    );
  }

  /** Sends what is ready, as far as the stream takes it. */
  #send(): void {
    if (this.#ready.length === 0) return;
    const stream = this.#stream;
    if (stream === undefined) {
      if (this.#listener === undefined && this.#reopening === undefined) this.#open();
      return;
    }
    const now = this.#options.clock.now();
    const leases: bigint[] = [];
    while (this.#inFlight.length < maxInFlight) {
      const renewal = this.#nextReady();
      if (renewal === undefined) break;
      if (this.#inFlight.length === 0) this.#heardAt = now;
      renewal.sentAt = now;
      this.#waiting.delete(renewal.lease);
      this.#inFlight.push(renewal);
      this.#remember(renewal.lease, now);
      leases.push(renewal.lease);
    }
    if (leases.length > 0) stream.send(leases);
  }

  #makeReady(renewal: Renewal): void {
    const { owner } = renewal;
    if (owner.ready.length === 0) this.#ready.push(owner);
    owner.ready.push(renewal);
  }

  /** Takes the next renewal of the next request. */
  #nextReady(): Renewal | undefined {
    for (let owner = this.#ready.shift(); owner !== undefined; owner = this.#ready.shift()) {
      const renewal = owner.ready.shift();
      if (owner.ready.length > 0) this.#ready.push(owner);
      // It may have its outcome already.
      if (renewal?.isOver === false) return renewal;
    }
    return undefined;
  }

  #remember(lease: bigint, now: number): void {
    this.#recent.delete(lease);
    this.#recent.set(lease, now);
    for (const [oldest, renewedAt] of this.#recent) {
      if (now - renewedAt < intervalMs && this.#recent.size <= maxRenewals) return;
      this.#recent.delete(oldest);
    }
  }

  #open(): void {
    const { open, clock } = this.#options;
    const listener: RenewalListener = {
      renewed: (outcomes) => {
        if (this.#listener === listener) this.#renewed(outcomes);
      },
      ended: (error) => {
        if (this.#listener === listener) this.#ended(error);
      },
    };
    this.#listener = listener;
    this.#heardAt = clock.now();
    open(listener).then(
      (stream) => {
        if (this.#listener !== listener) {
          stream.close(false);
          return;
        }
        this.#stream = stream;
        this.#heardAt = clock.now();
        this.#send();
      },
      (error: unknown) => listener.ended(toError(error)),
    );
  }

  #renewed(outcomes: readonly (number | Error)[]): void {
    const now = this.#options.clock.now();
    this.#heardAt = now;
    this.#failure = undefined;
    for (const outcome of outcomes) {
      const renewal = this.#inFlight.shift();
      if (renewal === undefined) break;
      // As long as it lasts at least: the store has begun to count later.
      renewal.settle(
        typeof outcome === "number" ? Math.max(0, outcome - (now - renewal.sentAt)) : outcome,
      );
    }
    if (this.#gathering === undefined) this.#send();
  }

  #ended(error: Error): void {
    const { clock } = this.#options;
    const hasServed = this.#failure === undefined;
    this.#failure = error;
    this.#drop(false);
    if (!(error instanceof WatchFanoutError) || error.reason !== "UPSTREAM_UNAVAILABLE") {
      this.#failAll(error);
      return;
    }
    this.#requeue();
    this.#reopening = clock.setTimeout(
      () => {
        this.#reopening = undefined;
        this.#send();
      },
      hasServed ? 0 : reopenMs,
    );
  }

  /** Renewals that were sent and have no outcome will be sent again. */
  #requeue(): void {
    for (let sent = this.#inFlight.shift(); sent !== undefined; sent = this.#inFlight.shift()) {
      const later = this.#waiting.get(sent.lease);
      if (later !== undefined) sent.join(later);
      this.#waiting.set(sent.lease, sent);
      this.#makeReady(sent);
    }
  }

  #drop(hasStalled: boolean): void {
    this.#listener = undefined;
    this.#stream?.close(hasStalled);
    this.#stream = undefined;
  }

  #check(): void {
    this.#checking ??= this.#options.clock.setTimeout(() => {
      this.#checking = undefined;
      this.#expire();
      if (this.size > 0) this.#check();
    }, checkMs);
  }

  #expire(): void {
    const now = this.#options.clock.now();
    if (this.#inFlight.length > 0 && now - this.#heardAt >= silenceMs) {
      this.#drop(true);
      this.#failure = upstreamUnavailable(`It sent no answer for ${silenceMs / 1_000} s.`);
      this.#requeue();
      this.#send();
    }
    const { timeoutMs } = this.#options;
    let error: Error | undefined;
    for (const renewal of this.#waiting.values()) {
      if (now - renewal.askedAt < timeoutMs) continue;
      error ??= notInTime(timeoutMs, this.#failure);
      this.#waiting.delete(renewal.lease);
      renewal.settle(error);
    }
    if (error !== undefined) this.#prune();
  }

  /** Drops requests that have nothing left to be sent: without a stream nothing else would. */
  #prune(): void {
    for (let left = this.#ready.length; left > 0; left--) {
      const owner = this.#ready.shift();
      while (owner?.ready.at(0)?.isOver === true) owner.ready.shift();
      if (owner !== undefined && owner.ready.length > 0) this.#ready.push(owner);
    }
  }

  #failAll(error: Error): void {
    for (const renewal of this.#waiting.values()) renewal.settle(error);
    this.#waiting.clear();
    this.#prune();
    for (let sent = this.#inFlight.shift(); sent !== undefined; sent = this.#inFlight.shift()) {
      sent.settle(error);
    }
  }
}

function notInTime(timeoutMs: number, failure: Error | undefined): WatchFanoutError {
  const why = failure === undefined ? "" : ` ${failure.message}`;
  return upstreamUnavailable(
    `The store did not answer within ${timeoutMs / 1_000} s, so the lease may or may not be renewed.${why} Try again.`,
    failure,
  );
}

function tooManyRenewals(): WatchFanoutError {
  return new WatchFanoutError(
    "OVERLOADED",
    `This replica has ${maxRenewals} renewals of leases to do, the maximum. Try again later.`,
  );
}

/** The outcome for a lease that the store does not have: one for all, since there may be thousands. */
export const endedLease = new WatchFanoutError(
  "LEASE_NOT_FOUND",
  "There is no such lease. It may have expired, or was revoked. Grant another one.",
);

/** The error for a lease that the store does not have. */
export function leaseNotFound(lease: bigint): WatchFanoutError {
  return new WatchFanoutError(
    "LEASE_NOT_FOUND",
    `There is no lease ${lease}. It may have expired, or was revoked. Grant another one.`,
    { metadata: { lease: String(lease) } },
  );
}
