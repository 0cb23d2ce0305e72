import type { Clock, Timer } from "../../base/clock.ts";
import { upstreamUnavailable } from "../../base/errors.ts";

/** How many reads of the store there may be. */
export interface UpstreamBounds {
  /** Under way at once, all owners together, and of one owner. */
  readonly concurrent: number;
  readonly concurrentPerOwner: number;
  /** Waiting, all owners together; those that wait for the same answer count once for each owner. */
  readonly queued: number;
  /** How long a read waits for its turn, in milliseconds. */
  readonly maxWaitMs: number;
}

export const defaultUpstreamBounds: UpstreamBounds = {
  concurrent: 32,
  concurrentPerOwner: 8,
  queued: 2_000,
  maxWaitMs: 5_000,
};

/** A question to the store. */
export interface UpstreamRequest<T> {
  /** The same for all that have the same answer; undefined: no other has. */
  readonly name: string | undefined;
  /** Whether the answer is the same whenever it is asked for. Otherwise only those share it who came before. */
  readonly isCacheable: boolean;
  /** When the call came that the answer is for, by the clock. Default: now. */
  readonly since?: number | undefined;
  /** `signal` is aborted when nobody wants the answer any more. */
  readonly ask: (signal: AbortSignal) => Promise<T>;
}

/** What waits for the store. */
export interface UpstreamStats {
  readonly inFlight: number;
  readonly queued: number;
  /** Reads that were refused, as there were too many or they waited for too long. */
  readonly refused: number;
}

/**
 * Bounds how many reads go to the store at once. What the caches can't answer waits here for its turn, by owner in
 * rotation, so that a store that was away for a moment is not met by all that came meanwhile, and one client's
 * reads do not hold up another's. The same questions are asked once.
 *
 * A read that waits too long is refused with UPSTREAM_UNAVAILABLE; if too many wait, the owner that has most of
 * them loses the last.
 */
export class UpstreamLimiter {
  readonly #clock: Clock;
  readonly #bounds: UpstreamBounds;
  /** What waits, by owner. The one whose turn it is comes first. */
  readonly #queues = new Map<object, Pending[]>();
  /** How many reads each owner has under way, of those that have any. */
  readonly #inFlightOf = new Map<object, number>();
  /** What may be shared by who comes now, by name. */
  readonly #shared = new Map<string, Pending>();
  #inFlight = 0;
  #queued = 0;
  #refused = 0;

  constructor(clock: Clock, bounds: Partial<UpstreamBounds> = {}) {
    this.#clock = clock;
    this.#bounds = { ...defaultUpstreamBounds, ...bounds };
  }

  stats(): UpstreamStats {
    return { inFlight: this.#inFlight, queued: this.#queued, refused: this.#refused };
  }

  /** The answer, when it is the owner's turn. Rejects as the question does, with the signal's reason, or as above. */
  run<T>(owner: object, upstreamRequest: UpstreamRequest<T>, signal?: AbortSignal): Promise<T> {
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const { name, since = this.#clock.now() } = upstreamRequest;
    let pending = name === undefined ? undefined : this.#shared.get(name);
    if (pending === undefined || !pending.answers(since)) {
      pending = new Pending(upstreamRequest);
      if (name !== undefined) this.#shared.set(name, pending);
    }
    const answer = this.#join(pending, signal) as Promise<T>;
    const isWaiting = pending.startedAt === undefined;
    if (isWaiting && !pending.owners.has(owner)) this.#enqueue(owner, pending);
    this.#startNext();
    return answer;
  }

  #join(pending: Pending, signal: AbortSignal | undefined): Promise<unknown> {
    pending.users++;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const leave = (): void => {
      signal?.removeEventListener("abort", onAbort);
      pending.users--;
      if (pending.users === 0) this.#abandon(pending);
    };
    const onAbort = (): void => {
      reject(signal?.reason);
      leave();
    };
    signal?.addEventListener("abort", onAbort);
    pending.settled.promise.then(resolve, reject).finally(() => {
      if (signal?.aborted !== true) leave();
    });
    return promise;
  }

  #enqueue(owner: object, pending: Pending): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, [pending]);
    else queue.push(pending);
    pending.owners.add(owner);
    this.#queued++;
    pending.timer ??= this.#clock.setTimeout(() => {
      this.#refuse(pending, `waited ${this.#bounds.maxWaitMs} ms for its turn`);
    }, this.#bounds.maxWaitMs);
    if (this.#queued > this.#bounds.queued) this.#refuseOne();
  }

  #refuseOne(): void {
    let longest: Pending[] = [];
    for (const queue of this.#queues.values()) if (queue.length > longest.length) longest = queue;
    const last = longest.at(-1);
    if (last !== undefined) this.#refuse(last, `came when ${this.#bounds.queued} others waited`);
  }

  #refuse(pending: Pending, why: string): void {
    this.#refused += pending.users;
    this.#abandon(pending);
    pending.settled.reject(
      upstreamUnavailable(
        `The store has to answer this, and it has more to do than it can: the read ${why}. Try again soon.`,
      ),
    );
  }

  /** Nobody wants it, or may have it, any more. Harmless after its end. */
  #abandon(pending: Pending): void {
    this.#dequeue(pending);
    this.#unshare(pending);
    pending.abort.abort();
  }

  #unshare(pending: Pending): void {
    const { name } = pending.request;
    if (name !== undefined && this.#shared.get(name) === pending) this.#shared.delete(name);
  }

  /** It does not wait any more, wherever it did. */
  #dequeue(pending: Pending): void {
    pending.timer?.cancel();
    for (const owner of pending.owners) {
      const queue = this.#queues.get(owner);
      const at = queue?.indexOf(pending) ?? -1;
      if (queue === undefined || at === -1) continue;
      queue.splice(at, 1);
      this.#queued--;
      if (queue.length === 0) this.#queues.delete(owner);
    }
    pending.owners.clear();
  }

  #startNext(): void {
    const { concurrent, concurrentPerOwner } = this.#bounds;
    while (this.#inFlight < concurrent) {
      let next: object | undefined;
      for (const owner of this.#queues.keys()) {
        if ((this.#inFlightOf.get(owner) ?? 0) >= concurrentPerOwner) continue;
        next = owner;
        break;
      }
      const queue = next === undefined ? undefined : this.#queues.get(next);
      const pending = queue?.[0];
      if (next === undefined || queue === undefined || pending === undefined) return;
      // Behind all others.
      this.#queues.delete(next);
      this.#queues.set(next, queue);
      this.#start(next, pending);
    }
  }

  #start(owner: object, pending: Pending): void {
    this.#dequeue(pending);
    pending.startedAt = this.#clock.now();
    const { ask } = pending.request;
    this.#inFlight++;
    this.#inFlightOf.set(owner, (this.#inFlightOf.get(owner) ?? 0) + 1);
    ask(pending.abort.signal)
      .then(pending.settled.resolve, pending.settled.reject)
      .finally(() => {
        this.#unshare(pending);
        this.#inFlight--;
        const left = (this.#inFlightOf.get(owner) ?? 0) - 1;
        if (left > 0) this.#inFlightOf.set(owner, left);
        else this.#inFlightOf.delete(owner);
        this.#startNext();
      });
  }
}

/** A question, and all who wait for its answer. */
class Pending {
  readonly request: UpstreamRequest<unknown>;
  readonly settled = Promise.withResolvers<unknown>();
  readonly abort = new AbortController();
  /** In whose queues it is. */
  readonly owners = new Set<object>();
  users = 0;
  /** When it was asked, by the clock; undefined while it waits. */
  startedAt: number | undefined;
  timer: Timer | undefined;

  constructor(request: UpstreamRequest<unknown>) {
    this.request = request;
    // Where nobody waits any more, nobody has to hear of it.
    this.settled.promise.catch(() => {});
  }

  /** Whether its answer is one to the same question of a call that came then: not if it was asked before. */
  answers(since: number): boolean {
    return this.startedAt === undefined || this.request.isCacheable || this.startedAt > since;
  }
}
