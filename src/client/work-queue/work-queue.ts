import { type Clock, keepAliveClock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";
import { Fifo } from "../../base/fifo.ts";
import { DelayHeap } from "./delay-heap.ts";
import { Entry } from "./entry.ts";
import { named, WorkQueueFullError, type WorkQueueOptions } from "./options.ts";
import { defaultControllerRateLimiter, type RateLimiter } from "./rate-limiter.ts";
import { WorkQueueMetrics } from "./work-queue-metrics.ts";

/**
 * Keys of what there is to do, for workers that bring things into the state that they should be in. It holds
 * keys, not tasks: however often one is added before a worker takes it, it comes once.
 *
 * - A key is with one worker at a time. Added meanwhile, it comes again once that one says `done`.
 * - First come, first served; a key that is added again keeps its place.
 * - `addAfter` is an `add` at a later time. Of two for one key the earlier holds; an `add` in between stands
 *   beside it.
 *
 * `runWorkers` is the loop over it that most need:
 *
 *     const queue = new WorkQueue<string>({ name: "pods" });
 *     informer.addEventHandler({ onChange: (key) => queue.add(key) });
 *     await runWorkers(4, queue, (key, signal) => reconcile(key, signal), { signal });
 */
export class WorkQueue<K extends NonNullable<unknown>> {
  readonly name: string;
  readonly #keyOf: ((key: K) => unknown) | undefined;
  readonly #rateLimiter: RateLimiter;
  readonly #maxKeys: number;
  readonly #clock: Clock;
  readonly #metrics: WorkQueueMetrics | undefined;
  /** All known keys: each is dirty, being processed or delayed, or more than one of these. */
  readonly #entries = new Map<unknown, Entry<K>>();
  /** The dirty ones that no worker has, in the order in which they are handed out. */
  #ready = new Fifo<Entry<K>>();
  /** Those that workers have, the one that was handed out first in front. */
  readonly #processing = new Set<Entry<K>>();
  readonly #delayed = new DelayHeap<Entry<K>>();
  #timer: { readonly due: number; readonly timer: Timer } | undefined;
  /** Who waits for a key, first come first served. Not empty only while `#ready` is. */
  readonly #waiting = new Set<(entry: Entry<K> | undefined) => void>();
  /** Draining: what is dirty is still handed out. */
  #state: "open" | "draining" | "shut down" = "open";
  readonly #drained = Promise.withResolvers<void>();

  /** Throws INVALID_REQUEST of a bound that is none. */
  constructor(options: WorkQueueOptions<K> = {}) {
    this.name = options.name ?? "";
    this.#keyOf = options.keyOf;
    this.#clock = options.clock ?? keepAliveClock;
    this.#rateLimiter = options.rateLimiter ?? defaultControllerRateLimiter(this.#clock);
    this.#maxKeys = options.maxKeys ?? 1_000_000;
    if (!(this.#maxKeys >= 1)) {
      throw invalidRequest(
        "maxKeys",
        `maxKeys is ${this.#maxKeys}: a queue needs room for 1 at least.`,
      );
    }
    this.#metrics = this.name === "" ? undefined : new WorkQueueMetrics(this.name, this);
  }

  /** How many keys wait to be handed out now. */
  get length(): number {
    return this.#ready.length;
  }

  /** How many keys wait for their time. */
  get delayed(): number {
    return this.#delayed.length;
  }

  /** How many keys workers have. */
  get processing(): number {
    return this.#processing.size;
  }

  /** Whether nothing is taken in any more. */
  get shuttingDown(): boolean {
    return this.#state !== "open";
  }

  /** For how long keys have been with their workers, in milliseconds, the longest first. */
  *runningMs(): Generator<number, void, void> {
    const now = this.#clock.now();
    for (const entry of this.#processing) yield now - entry.takenAt;
  }

  /** There is something to do about `key`. Throws a WorkQueueFullError. A queue that shuts down ignores it. */
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
   * Adds `key` once `delayMs` milliseconds have passed. Throws INVALID_REQUEST of a delay that is not a number,
   * and a WorkQueueFullError. A queue that shuts down ignores it.
   */
  addAfter(key: K, delayMs: number): void {
    if (!Number.isFinite(delayMs)) {
      throw invalidRequest("delayMs", `delayMs is ${delayMs}: it has to be a finite number.`);
    }
    if (this.shuttingDown) return;
    if (delayMs <= 0) {
      this.add(key);
      return;
    }
    this.#delayed.put(this.#know(key), this.#clock.now() + delayMs);
    this.#setTimer();
  }

  /** Adds `key` again when its rate limiter, which counts this as a failure, lets it. Throws as `addAfter`. */
  addRateLimited(key: K, rateLimiter: RateLimiter = this.#rateLimiter): void {
    if (this.shuttingDown) return;
    this.#metrics?.retried();
    this.addAfter(key, rateLimiter.when(this.#itemOf(key)));
  }

  /**
   * Tells the rate limiter that `key` went well or is given up: its next failure is a first one. Changes
   * nothing about when the key comes.
   */
  forget(key: K, rateLimiter: RateLimiter = this.#rateLimiter): void {
    rateLimiter.forget(this.#itemOf(key));
  }

  /** How often `key` has failed since it was last forgotten. */
  numRequeues(key: K): number {
    return this.#rateLimiter.numRequeues(this.#itemOf(key));
  }

  /**
   * The next key, for the caller alone until it says `done`; undefined once the queue is shut down. Rejects
   * with the signal's reason once that is aborted, and then has taken none.
   */
  get(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<K | undefined> {
    const { signal } = options;
    if (signal?.aborted === true) return Promise.reject(signal.reason);
    const entry = this.#ready.shift();
    if (entry !== undefined) return Promise.resolve(this.#handOut(entry));
    if (this.#state === "shut down") return Promise.resolve(undefined);
    return new Promise((resolve, reject) => {
      const take = (next: Entry<K> | undefined): void => {
        signal?.removeEventListener("abort", giveUp);
        resolve(next === undefined ? undefined : this.#handOut(next));
      };
      const giveUp = (): void => {
        this.#waiting.delete(take);
        reject(signal?.reason);
      };
      this.#waiting.add(take);
      signal?.addEventListener("abort", giveUp, { once: true });
    });
  }

  /**
   * The worker that has `key` is through with it, whatever came of it. Throws INVALID_REQUEST if no worker has
   * it: said twice, it would take the key away from another.
   */
  done(key: K): void {
    const item = this.#itemOf(key);
    const entry = this.#entries.get(item);
    if (entry === undefined || !entry.processing) {
      throw invalidRequest("key", `No worker has ${named(item)}: done is said once for each get.`);
    }
    entry.processing = false;
    this.#processing.delete(entry);
    this.#metrics?.done(this.#clock.now() - entry.takenAt);
    if (entry.dirty) this.#enqueue(entry);
    else this.#forgetIdle(entry);
    this.#endIfDrained();
  }

  /**
   * Takes nothing in from now on and hands nothing out: what waits is dropped, what workers have is theirs to
   * finish. Harmless when called twice; ends a drain.
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
   * Takes nothing in from now on, drops what waits for its time, and resolves once workers have got and done
   * all the rest. Somebody has to go on getting meanwhile. Once the signal is aborted, what is left is dropped as
   * by `shutDown`, and this rejects with the signal's reason. After `shutDown` it resolves at once.
   */
  async shutDownWithDrain(signal?: AbortSignal): Promise<void> {
    if (this.#state === "open") this.#state = "draining";
    this.#dropDelayed();
    this.#endIfDrained();
    let gaveUp = false;
    const giveUp = (): void => {
      gaveUp = this.#state === "draining";
      this.shutDown();
    };
    if (signal?.aborted === true) giveUp();
    signal?.addEventListener("abort", giveUp);
    await this.#drained.promise;
    signal?.removeEventListener("abort", giveUp);
    if (gaveUp) throw signal?.reason;
  }

  [Symbol.dispose](): void {
    this.shutDown();
  }

  /** The entry of `key`, a new one if it is not known yet. */
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
      "Keys that are objects need keyOf, which makes of each what tells it apart from others: a string " +
        "of its fields, for example.",
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

  /** Forgets an entry that nothing is to be done about. */
  #forgetIdle(entry: Entry<K>): void {
    if (entry.dirty || entry.processing || entry.position !== -1) return;
    this.#entries.delete(entry.item);
  }

  /** Sees to it that the timer goes off when the first of the delayed is due. */
  #setTimer(): void {
    const first = this.#delayed.first;
    if (first?.due === this.#timer?.due) return;
    this.#timer?.timer.cancel();
    this.#timer = undefined;
    if (first === undefined) return;
    // What is due later than a timer can be set to waits in stages.
    const delayMs = Math.min(Math.max(first.due - this.#clock.now(), 0), maxTimerMs);
    const timer = this.#clock.setTimeout(() => this.#addDue(), delayMs);
    this.#timer = { due: first.due, timer };
  }

  /** Timers may go off a little early, so nothing may be due yet. */
  #addDue(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let first = this.#delayed.first; first !== undefined; first = this.#delayed.first) {
      if (first.due > now) break;
      this.#delayed.shift();
      this.add(first.key);
    }
    this.#setTimer();
  }

  #dropDelayed(): void {
    for (const entry of this.#delayed.clear()) this.#forgetIdle(entry);
    this.#setTimer();
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
