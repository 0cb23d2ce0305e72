import { context } from "@opentelemetry/api";
import type { Clock, Timer } from "../../base/clock.ts";
import { upstreamUnavailable } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import { waitFor } from "../../base/wait.ts";

/** Bounds of reads that go to the store. */
export interface UpstreamBounds {
  /** Maximum number of reads in flight, of all owners together, of one group of owners, and of one owner. */
  readonly concurrent: number;
  readonly concurrentPerGroup: number;
  readonly concurrentPerOwner: number;
  /** Maximum number of queued reads of all owners. Those that share a response count once for each owner. */
  readonly queued: number;
  /** Maximum time that a read is queued, in milliseconds. */
  readonly maxWaitMs: number;
}

const defaultUpstreamBounds: UpstreamBounds = {
  concurrent: 32,
  concurrentPerGroup: 24,
  concurrentPerOwner: 8,
  queued: 2_000,
  maxWaitMs: 5_000,
};

/** A page of a history takes hundreds of small reads of the store, one after the other. */
const historyBounds: UpstreamBounds = {
  concurrent: 8,
  concurrentPerGroup: 4,
  concurrentPerOwner: 2,
  queued: 200,
  maxWaitMs: 5_000,
};

/** One read of the store, which several calls may share. */
export interface UpstreamRequest<T> {
  /** Equal for requests with the same response; undefined: never shared. */
  readonly name: string | undefined;
  /** Whether the response never changes. Otherwise only calls that arrived before the read began share it. */
  readonly isCacheable: boolean;
  /** When the call arrived, in the clock's milliseconds. Default: now. */
  readonly since?: number | undefined;
  /** Reads from the store. `signal` is aborted when no call waits for the response any more. */
  readonly ask: (signal: AbortSignal) => Promise<T>;
}

/** Numbers of reads that go to the store. */
export interface UpstreamStats {
  readonly inFlight: number;
  readonly queued: number;
  /** Calls refused since too many were queued, or since theirs was queued for too long. */
  readonly refused: number;
}

/**
 * Bounds concurrent reads of the store. Reads that the caches can't serve are queued here and started round-robin
 * by group of owners (caller), and by owner (connection) within it, so that a store is not overloaded when it becomes
 * available again, and one client's reads do not delay another's. Equal reads are sent once.
 *
 * A read queued for too long is refused with UPSTREAM_UNAVAILABLE. If too many are queued, the newest read of the
 * owner with the most, in the group with the most, is refused.
 */
export class UpstreamLimiter {
  readonly #clock: Clock;
  readonly #bounds: UpstreamBounds;
  readonly #historyBounds: Partial<UpstreamBounds>;
  /** Reads in flight are inside, and those that are queued wait, once for each owner that shares them. */
  readonly #gate: Gate;
  /** The reads that a new call may share, by name. */
  readonly #shared = new Map<string, Pending>();
  #histories: UpstreamLimiter | undefined;
  #refused = 0;

  constructor(
    clock: Clock,
    bounds: Partial<UpstreamBounds> = {},
    histories: Partial<UpstreamBounds> = {},
  ) {
    this.#clock = clock;
    this.#historyBounds = histories;
    this.#bounds = { ...defaultUpstreamBounds, ...bounds };
    this.#gate = new Gate(this.#bounds);
  }

  /** Bounds what is read of histories, apart from other reads, which are much shorter. */
  get histories(): UpstreamLimiter {
    this.#histories ??= new UpstreamLimiter(this.#clock, {
      ...historyBounds,
      ...this.#historyBounds,
    });
    return this.#histories;
  }

  stats(): UpstreamStats {
    const { inFlight = 0, queued = 0, refused = 0 } = this.#histories?.stats() ?? {};
    return {
      inFlight: this.#gate.size + inFlight,
      queued: this.#gate.queued + queued,
      refused: this.#refused + refused,
    };
  }

  /**
   * Resolves to the response, once the owner has had its turn. Rejects with the store's error, the signal's reason,
   * or with UPSTREAM_UNAVAILABLE.
   */
  run<T>(owner: object, upstreamRequest: UpstreamRequest<T>, signal?: AbortSignal): Promise<T> {
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const { name, since = this.#clock.now() } = upstreamRequest;
    let pending = name === undefined ? undefined : this.#shared.get(name);
    if (pending === undefined || !pending.serves(since)) {
      pending = new Pending(upstreamRequest);
      if (name !== undefined) this.#shared.set(name, pending);
    }
    const response = this.#join(pending, signal) as Promise<T>;
    if (pending.startedAt === undefined && !pending.places.has(owner)) this.#queue(owner, pending);
    return response;
  }

  #join(pending: Pending, signal: AbortSignal | undefined): Promise<unknown> {
    pending.users++;
    return waitFor(
      (resolve, reject) => {
        pending.settled.promise.then(resolve, reject);
        return () => {
          pending.users--;
          if (pending.users === 0) this.#abandon(pending);
        };
      },
      { signal },
    );
  }

  /** Queues the read among those of an owner. It is started in the turn that is first. */
  #queue(owner: object, pending: Pending): void {
    const { maxWaitMs, queued } = this.#bounds;
    pending.timer ??= this.#clock.setTimeout(() => {
      this.#refuse(pending, `was queued for ${maxWaitMs} ms`);
    }, maxWaitMs);
    const enter = (): void => this.#start(owner, pending);
    const refuse = (): void => this.#refuse(pending, `arrived while ${queued} others were queued`);
    const leave = this.#gate.queue(owner, { bytes: 0, enter, refuse });
    pending.places.set(owner, leave);
  }

  #refuse(pending: Pending, reason: string): void {
    this.#refused += pending.users;
    this.#abandon(pending);
    pending.settled.reject(
      upstreamUnavailable(
        `Only the store can serve this, and it is overloaded: the read ${reason}. Try again soon.`,
      ),
    );
  }

  /** Cancels a read that no call waits for, or that is refused. Idempotent; has no effect on one that has ended. */
  #abandon(pending: Pending): void {
    this.#dequeue(pending);
    this.#unshare(pending);
    pending.abort.abort();
  }

  #unshare(pending: Pending): void {
    const { name } = pending.request;
    if (name !== undefined && this.#shared.get(name) === pending) this.#shared.delete(name);
  }

  /** Removes the read from the queues of all its owners. */
  #dequeue(pending: Pending): void {
    pending.timer?.cancel();
    for (const leave of pending.places.values()) leave();
    pending.places.clear();
  }

  #start(owner: object, pending: Pending): void {
    this.#dequeue(pending);
    pending.startedAt = this.#clock.now();
    pending
      .ask(pending.abort.signal)
      .then(pending.settled.resolve, pending.settled.reject)
      .finally(() => {
        this.#unshare(pending);
        this.#gate.leave(owner);
      });
  }
}

/** A queued or running read, with the calls that wait for its response. */
class Pending {
  readonly request: UpstreamRequest<unknown>;
  /** In the trace of the first call that waits for the response. Another call may start it. */
  readonly ask: UpstreamRequest<unknown>["ask"];
  readonly settled = Promise.withResolvers<unknown>();
  readonly abort = new AbortController();
  /** The owners whose queues hold it, and what removes it from each. */
  readonly places = new Map<object, () => void>();
  /** Number of calls that wait for the response. */
  users = 0;
  /** When it was sent, in the clock's milliseconds; undefined while it is queued. */
  startedAt: number | undefined;
  timer: Timer | undefined;

  constructor(request: UpstreamRequest<unknown>) {
    this.request = request;
    this.ask = context.bind(context.active(), request.ask);
    // A failure that no call waits for must not become an unhandled rejection.
    this.settled.promise.catch(() => {});
  }

  /** Whether a call that arrived at `since` may share it: not a response that may change and was read before that. */
  serves(since: number): boolean {
    return this.startedAt === undefined || this.request.isCacheable || this.startedAt > since;
  }
}
