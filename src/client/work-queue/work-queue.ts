import { type Clock, keepAliveClock } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import { waitFor } from "../../base/wait.ts";
import { Delayed, DelayingQueue } from "./delaying-queue.ts";
import { defaultControllerRateLimiter, type RateLimiter } from "./rate-limiter.ts";
import { WorkQueueMetrics } from "./work-queue-metrics.ts";

/**
 * A queue of keys for the workers of a controller, as in client-go. It holds keys, not tasks: a key that is added
 * several times before a worker takes it is handed out once.
 *
 * - A key is processed by one worker at a time. If it is added meanwhile, it is handed out again after `done`.
 * - Keys are handed out in the order of their first `add`; adding a queued key again does not move it.
 * - `addAfter` is a delayed `add`. The earlier of two delays for one key applies; an immediate `add` in between is
 *   independent of them.
 *
 * `runWorkers` is the usual loop over it:
 *
 *     const queue = new WorkQueue<string>({ name: "pods" });
 *     informer.addEventHandler({ onChange: (key) => queue.add(key) });
 *     await runWorkers(4, queue, (key, signal) => reconcile(key, signal), { signal });
 */
export class WorkQueue<K extends NonNullable<unknown>> {
  /** The name in metrics and spans; empty without one. */
  readonly name: string;
  readonly #keyOf: ((key: K) => unknown) | undefined;
  readonly #rateLimiter: RateLimiter;
  readonly #maxKeys: number;
  readonly #clock: Clock;
  readonly #metrics: WorkQueueMetrics | undefined;
  /** All known keys. Each is dirty, being processed or delayed, or several of these. */
  readonly #entries = new Map<unknown, Entry<K>>();
  /** The dirty entries that are not being processed, in the order in which they are handed out. */
  #ready = new Fifo<Entry<K>>();
  /** The entries that are being processed, in the order in which they were handed out. */
  readonly #processing = new Set<Entry<K>>();
  readonly #delayed: DelayingQueue<Entry<K>>;
  /** The calls of `get` that wait for a key, in order. Empty unless `#ready` is. */
  readonly #waiting = new Set<(entry: Entry<K> | undefined) => void>();
  /** Draining: dirty keys are still handed out. */
  #state: "open" | "draining" | "shut down" = "open";
  readonly #drained = Promise.withResolvers<void>();

  /** Throws INVALID_REQUEST for a `maxKeys` below 1. */
  constructor(options: WorkQueueOptions<K> = {}) {
    this.name = options.name ?? "";
    this.#keyOf = options.keyOf;
    this.#clock = options.clock ?? keepAliveClock;
    this.#delayed = new DelayingQueue(this.#clock, ({ key }) => this.add(key));
    this.#rateLimiter = options.rateLimiter ?? defaultControllerRateLimiter(this.#clock);
    this.#maxKeys = options.maxKeys ?? 1_000_000;
    if (!(this.#maxKeys >= 1)) {
      throw invalidRequest("maxKeys", `maxKeys is ${this.#maxKeys}: it must be at least 1.`);
    }
    this.#metrics = this.name === "" ? undefined : new WorkQueueMetrics(this.name, this);
  }

  /** Number of keys that can be handed out now. */
  get length(): number {
    return this.#ready.length;
  }

  /** Number of delayed keys. */
  get delayed(): number {
    return this.#delayed.length;
  }

  /** Number of keys that workers process. */
  get processing(): number {
    return this.#processing.size;
  }

  /** Whether it has been shut down or is draining: added keys are ignored. */
  get shuttingDown(): boolean {
    return this.#state !== "open";
  }

  /** Time since each key in progress was handed out, in milliseconds, the longest first. */
  *runningMs(): Generator<number, void, void> {
    const now = this.#clock.now();
    for (const entry of this.#processing) yield now - entry.takenAt;
  }

  /** Adds `key`, unless it is queued already. Throws a WorkQueueFullError. Ignored after a shutdown. */
  add(key: K): void {
    if (this.shuttingDown) return;
    const entry = this.#know(key);
    if (entry.dirty) return;
    this.#metrics?.added();
    entry.dirty = true;
    entry.addedAt = this.#clock.now();
    if (!entry.processing) this.#enqueue(entry);
  }

  /**
   * Adds `key` after `delayMs` milliseconds. Throws INVALID_REQUEST if that is not a finite number, and a
   * WorkQueueFullError. Ignored after a shutdown.
   */
  addAfter(key: K, delayMs: number): void {
    if (!Number.isFinite(delayMs)) {
      throw invalidRequest("delayMs", `delayMs is ${delayMs}: it must be a finite number.`);
    }
    if (this.shuttingDown) return;
    if (delayMs <= 0) {
      this.add(key);
      return;
    }
    this.#delayed.put(this.#know(key), delayMs);
  }

  /** Adds `key` after the delay that the rate limiter returns, which counts it as a failure. Throws as `addAfter`. */
  addRateLimited(key: K, rateLimiter: RateLimiter = this.#rateLimiter): void {
    if (this.shuttingDown) return;
    this.#metrics?.retried();
    this.addAfter(key, rateLimiter.when(this.#itemOf(key)));
  }

  /** Resets the failures of `key` in the rate limiter: it succeeded or is given up. Does not affect the queue. */
  forget(key: K, rateLimiter: RateLimiter = this.#rateLimiter): void {
    rateLimiter.forget(this.#itemOf(key));
  }

  /** Number of failures of `key` since it was last forgotten. */
  numRequeues(key: K): number {
    return this.#rateLimiter.numRequeues(this.#itemOf(key));
  }

  /**
   * Takes the next key, which no other worker gets until `done`; waits for one if necessary. Resolves to undefined
   * after the queue is shut down. Rejects with the signal's reason when that is aborted; no key is taken then.
   */
  get(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<K | undefined> {
    const { signal } = options;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const entry = this.#ready.shift();
    if (entry !== undefined) return Promise.resolve(this.#handOut(entry));
    if (this.#state === "shut down") return Promise.resolve(undefined);
    return waitFor<K | undefined>(
      (resolve) => {
        const take = (next: Entry<K> | undefined): void =>
          resolve(next === undefined ? undefined : this.#handOut(next));
        this.#waiting.add(take);
        return () => this.#waiting.delete(take);
      },
      { signal },
    );
  }

  /**
   * Ends the processing of `key`, whatever its outcome. Throws INVALID_REQUEST if no worker processes it: a second
   * call would otherwise take the key away from another worker.
   */
  done(key: K): void {
    const item = this.#itemOf(key);
    const entry = this.#entries.get(item);
    if (entry === undefined || !entry.processing) {
      throw invalidRequest(
        "key",
        `No worker has ${named(item)}: call done exactly once for each get.`,
      );
    }
    entry.processing = false;
    this.#processing.delete(entry);
    this.#metrics?.done(this.#clock.now() - entry.takenAt);
    if (entry.dirty) this.#enqueue(entry);
    else this.#forgetIdle(entry);
    this.#endIfDrained();
  }

  /**
   * Shuts the queue down: added keys are ignored, queued keys are dropped, and keys in progress may still be
   * finished. Idempotent; ends a drain.
   */
  shutDown(): void {
    this.#dropDelayed();
    this.#ready = new Fifo();
    for (const entry of [...this.#entries.values()]) {
      entry.dirty = false;
      this.#forgetIdle(entry);
    }
    this.#end();
  }

  /**
   * Shuts the queue down after its workers have processed all queued keys; delayed keys are dropped, and added keys
   * ignored. Workers must continue to call `get`. When the signal is aborted, the remaining keys are dropped as by
   * `shutDown`, and this rejects with the signal's reason. After `shutDown` it resolves immediately.
   */
  async shutDownWithDrain(signal?: AbortSignal): Promise<void> {
    if (this.#state === "open") this.#state = "draining";
    this.#dropDelayed();
    this.#endIfDrained();
    let hasGivenUp = false;
    const giveUp = (): void => {
      hasGivenUp = this.#state === "draining";
      this.shutDown();
    };
    if (signal?.aborted === true) giveUp();
    signal?.addEventListener("abort", giveUp);
    await this.#drained.promise;
    signal?.removeEventListener("abort", giveUp);
    if (hasGivenUp) throw signal?.reason;
  }

  /** The same as `shutDown`, for `using`. */
  [Symbol.dispose](): void {
    this.shutDown();
  }

  /** Returns the entry of `key`, a new one if it is not known. */
  #know(key: K): Entry<K> {
    const item = this.#itemOf(key);
    const known = this.#entries.get(item);
    if (known !== undefined) {
      known.key = key;
      return known;
    }
    if (this.#entries.size >= this.#maxKeys) throw new WorkQueueFullError(item, this.#maxKeys);
    const entry = new Entry(item, key);
    this.#entries.set(item, entry);
    return entry;
  }

  #itemOf(key: K): unknown {
    if (this.#keyOf !== undefined) return this.#keyOf(key);
    if (typeof key !== "object") return key;
    throw invalidRequest(
      "keyOf",
      "Keys that are objects require keyOf, which returns the identity of a key: for example a string of its fields.",
    );
  }

  #enqueue(entry: Entry<K>): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#ready.push(entry);
      return;
    }
    this.#waiting.delete(first);
    first(entry);
  }

  #handOut(entry: Entry<K>): K {
    entry.dirty = false;
    entry.processing = true;
    entry.takenAt = this.#clock.now();
    this.#processing.add(entry);
    this.#metrics?.taken(entry.takenAt - entry.addedAt);
    return entry.key;
  }

  /** Removes an entry that is neither dirty, nor processed, nor delayed. */
  #forgetIdle(entry: Entry<K>): void {
    if (entry.dirty || entry.processing || entry.place !== -1) return;
    this.#entries.delete(entry.item);
  }

  #dropDelayed(): void {
    for (const entry of this.#delayed.clear()) this.#forgetIdle(entry);
  }

  #endIfDrained(): void {
    if (this.#state === "open" || this.#ready.length + this.#processing.size > 0) return;
    this.#end();
  }

  #end(): void {
    this.#state = "shut down";
    this.#drained.resolve();
    if (this.#processing.size === 0) this.#metrics?.close();
    for (const take of this.#waiting) take(undefined);
    this.#waiting.clear();
  }
}

/** The state of one key in a work queue. */
class Entry<K> extends Delayed {
  readonly item: unknown;
  /** Of equal keys, the one that was added last. */
  key: K;
  /** Must be processed, or processed again after the run in progress. */
  dirty = false;
  processing = false;
  /** When it became dirty and when it was handed out, by the clock in milliseconds. */
  addedAt = 0;
  takenAt = 0;

  constructor(item: unknown, key: K) {
    super();
    this.item = item;
    this.key = key;
  }
}

/** Options of a WorkQueue. */
export interface WorkQueueOptions<K> {
  /** The name in metrics and spans. Without a name the queue has no metrics. */
  readonly name?: string | undefined;
  /**
   * Returns the identity of a key, compared as the keys of a Map: for `{ namespace, name }`, for example,
   * `${namespace}/${name}`. Required for keys that are objects. Default: the key itself.
   */
  readonly keyOf?: ((key: K) => unknown) | undefined;
  /** Determines when a failed key is added again. Default: `defaultControllerRateLimiter()`. */
  readonly rateLimiter?: RateLimiter | undefined;
  /**
   * Maximum number of distinct keys: queued, delayed and in progress. A further one is refused with a
   * WorkQueueFullError; a known key is always accepted, so that a worker can add its own key again. Default
   * 1,000,000.
   */
  readonly maxKeys?: number | undefined;
  /** Default: the system time, with timers that keep the process alive while a key is delayed. */
  readonly clock?: Clock | undefined;
}

/** The queue holds `maxKeys` distinct keys. The key was not added. */
export class WorkQueueFullError extends Error {
  override readonly name = "WorkQueueFullError";
  /** The bound of the queue. */
  readonly maxKeys: number;

  constructor(item: unknown, maxKeys: number) {
    super(
      `The work queue did not accept ${named(item)}: it already holds ${maxKeys} keys, its maximum. ` +
        "Check whether the workers keep up, or raise maxKeys.",
    );
    this.maxKeys = maxKeys;
  }
}

/** A key in an error message. */
function named(item: unknown): string {
  return typeof item === "string" ? JSON.stringify(item) : String(item);
}
