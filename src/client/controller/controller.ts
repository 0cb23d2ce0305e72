import { type Clock, keepAliveClock, maxTimerMs } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { Condition, settledWithin, within } from "../../base/wait.ts";
import { emitWarning } from "../../base/warning.ts";
import { lastKnown } from "../informer/delta-fifo/delta-fifo.ts";
import {
  HandlerError,
  type InformerError,
  InformerFault,
} from "../informer/handlers/informer-errors.ts";
import type { Lister } from "../informer/indexer/lister.ts";
import { type RevisionWaitOptions, wholeNumber } from "../informer/informer-options.ts";
import { waitForRevision } from "../informer/revision-wait.ts";
import type { Informer } from "../informer/shared-use.ts";
import { TypedResource } from "../typed/typed-resource.ts";
import type { TypedObject } from "../values/typed-object.ts";
import { type OwnWrite, observeWrites } from "../watch/own-writes.ts";
import { runWorkers } from "../work-queue/run-workers.ts";
import { WorkQueue, WorkQueueFullError } from "../work-queue/work-queue.ts";
import { ControllerMetrics } from "./controller-metrics.ts";
import type {
  ControllerListers,
  ControllerOptions,
  ObjectChange,
  ObjectSource,
  OwnedObjects,
  WatchedObjects,
} from "./controller-options.ts";
import { WrittenRevisions } from "./written-revisions.ts";

const defaultMaxKeys = 1_000_000;
const defaultStopTimeoutMs = 30_000;

/** What a controller is doing. */
export interface ControllerHealth {
  /** From "new" over "syncing" to "running", and from any of them over "stopping" to "stopped". */
  readonly state: "new" | "syncing" | "running" | "stopping" | "stopped";
  /** Whether it runs, and every informer receives what changes: for a readiness probe. */
  readonly isReady: boolean;
  readonly informers: readonly InformerHealth[];
  /** Number of keys that can be reconciled now. */
  readonly queued: number;
  /** Number of keys that wait for their time. */
  readonly delayed: number;
  /** The keys that are being reconciled, the one that takes longest first. */
  readonly reconciling: readonly string[];
  /** How long the first of them has been, in milliseconds; 0 if no key is being reconciled. */
  readonly longestMs: number;
  /** What a reconcile has thrown last; undefined if none has. */
  readonly lastError: { readonly key: string; readonly error: unknown } | undefined;
}

/** What an informer of a controller is doing. */
export interface InformerHealth {
  readonly name: string;
  readonly hasSynced: boolean;
  /** Time since anything was received, in milliseconds; undefined before. A quiet watch gets a bookmark every 60 s. */
  readonly silentMs: number | undefined;
  /** Why it can't list or watch now; undefined if it can. */
  readonly failure: WatchFanoutError | undefined;
}

/**
 * Creates a controller: calls `reconcile` for the keys of objects, after each change of them and of what they depend on. Starts
 * nothing before `run`.
 *
 *     await controller({
 *       for: services,
 *       owns: [endpoints],
 *       watches: [{ source: pods, keys: ({ key }) => servicesAround(key) }],
 *       reconcile: async (key, { object, lister }) => { … },
 *     }).run(signal);
 *
 * Throws INVALID_REQUEST for a bound out of range, and an InformerStopped for an informer that is stopped.
 */
export function controller<
  T,
  const Owned extends readonly unknown[] = [],
  const Watched extends readonly unknown[] = [],
>(options: ControllerOptions<T, Owned, Watched>): Controller {
  // The types of the values are only of use to the caller.
  return new KeyController(options as ControllerOptions<T, readonly unknown[], readonly unknown[]>);
}

/** A controller, which `controller` creates. */
export interface Controller extends ControllerListers {
  /** The name in metrics, spans and errors. */
  readonly name: string;
  /**
   * Starts the informers, waits until they have synced, and reconciles until the signal is aborted. Then it ends in order: the
   * reconciles in progress, the informers. Resolves after that.
   *
   * Rejects, also after that, with what stopped it: with an InformerStopped if an informer has stopped by itself, as its client
   * was closed; with what `onError` throws; and with an Error that names the keys if reconciles take longer to end than
   * `stopTimeoutMs`. Throws INVALID_REQUEST if it was called before.
   */
  run(signal?: AbortSignal): Promise<void>;
  /** Adds a key, as a change does: for triggers beside the sources. Throws a WorkQueueFullError. */
  enqueue(key: string): void;
  /** Waits until all informers have reached the revision. See `SharedInformer.waitForRevision`. */
  waitForRevision(revision: number, options?: RevisionWaitOptions): Promise<void>;
  /** Resolves when no key is being reconciled that the shard does not own. Rejects with the signal's reason. */
  drain(signal?: AbortSignal): Promise<void>;
  /** What it is doing now. */
  health(): ControllerHealth;
}

class KeyController<T> implements Controller {
  readonly name: string;
  readonly #options: ControllerOptions<T, readonly unknown[], readonly unknown[]>;
  readonly #clock: Clock;
  readonly #maxKeys: number;
  readonly #stopTimeoutMs: number;
  readonly #workers: number;
  readonly #queue: WorkQueue<string>;
  readonly #metrics: ControllerMetrics;
  /** By their sources. */
  readonly #informers = new Map<unknown, Informer<unknown>>();
  /** A callback may take the function out of it. */
  readonly #listers: ControllerListers = { lister: (source) => this.lister(source) };
  readonly #written: WrittenRevisions;
  /** When the reconcile of a key began, by the clock; in this order. */
  readonly #reconciling = new Map<string, number>();
  /** Notified when one has ended. */
  readonly #ended = new Condition();
  /** Keys that were due while the shard did not own them. */
  readonly #leftOut = new Set<string>();
  #state: ControllerHealth["state"] = "new";
  #lastError: ControllerHealth["lastError"];

  constructor(options: ControllerOptions<T, readonly unknown[], readonly unknown[]>) {
    const { for: source, owns = [], watches = [], maxKeys = defaultMaxKeys } = options;
    const { stopTimeoutMs = defaultStopTimeoutMs, rateLimiter, clock = keepAliveClock } = options;
    this.name = options.name ?? source.name;
    this.#options = options;
    this.#clock = clock;
    this.#maxKeys = maxKeys;
    this.#stopTimeoutMs = Math.min(stopTimeoutMs, maxTimerMs);
    this.#workers = wholeNumber("workers", options.workers, 1) ?? 1;
    this.#queue = new WorkQueue({ name: this.name, rateLimiter, maxKeys, clock });
    this.#metrics = new ControllerMetrics(this.name);
    this.#addSource(source, ({ key }) => [key]);
    for (const owned of owns) this.#addOwned(owned);
    for (const { source: other, keys } of watches as readonly WatchedObjects<unknown>[]) {
      this.#addSource(other, (change) => keys(change, this.#listers));
    }
    this.#written = new WrittenRevisions([...this.#informers.values()], maxKeys);
  }

  lister<S>(source: ObjectSource<S>): Lister<S> {
    const informer = this.#informers.get(source);
    if (informer !== undefined) return (informer as Informer<S>).lister();
    throw invalidRequest(
      "source",
      `The controller ${JSON.stringify(this.name)} has no source ${source.name} that is this object. Add it to owns or watches.`,
    );
  }

  async run(signal?: AbortSignal): Promise<void> {
    if (this.#state !== "new") {
      throw invalidRequest("run", `The controller ${JSON.stringify(this.name)} runs only once.`);
    }
    const stopping = new AbortController();
    const failures: unknown[] = [];
    const fail = (error: unknown): void => {
      failures.push(error);
      stopping.abort(error);
    };
    const stop = (): void => stopping.abort(signal?.reason);
    if (signal?.aborted === true) stop();
    signal?.addEventListener("abort", stop);
    const leave = this.#options.shard?.onChange(() => {
      this.#takeOver();
      return this.drain();
    });
    try {
      await this.#runUntil(stopping.signal, fail);
    } catch (error) {
      if (!stopping.signal.aborted || error !== stopping.signal.reason) fail(error);
    }
    this.#state = "stopping";
    signal?.removeEventListener("abort", stop);
    leave?.();
    this.#queue.shutDown();
    await this.#stopInformers().catch(fail);
    this.#state = "stopped";
    if (failures.length > 0) throw failures[0];
  }

  enqueue(key: string): void {
    if (this.#owns(key)) this.#queue.add(key);
    else this.#leaveOut(key);
  }

  waitForRevision(revision: number, options?: RevisionWaitOptions): Promise<void> {
    return waitForRevision(this.#informers.values(), revision, options);
  }

  drain(signal?: AbortSignal): Promise<void> {
    const isDrained = (): boolean => [...this.#reconciling.keys()].every((key) => this.#owns(key));
    return this.#ended.until(isDrained, { signal });
  }

  health(): ControllerHealth {
    const informers = Array.from(this.#informers.values(), (informer) => {
      const { name, hasSynced, silentMs, failure } = informer;
      return { name, hasSynced, silentMs, failure };
    });
    const [longest] = this.#reconciling.values();
    return {
      state: this.#state,
      isReady: this.#state === "running" && informers.every((each) => each.failure === undefined),
      informers,
      queued: this.#queue.length,
      delayed: this.#queue.delayed,
      reconciling: [...this.#reconciling.keys()],
      longestMs: longest === undefined ? 0 : this.#clock.now() - longest,
      lastError: this.#lastError,
    };
  }

  #addOwned<S>(owned: ObjectSource<S> | OwnedObjects<S>): void {
    if (!("owner" in owned)) {
      this.#addSource(
        owned,
        ({ key }) => [key],
        (key) => [key],
      );
      return;
    }
    const { source } = owned;
    const ownersOf = (object: TypedObject<S> | undefined): readonly string[] => {
      const owners = (object && owned.owner(object)) ?? [];
      return typeof owners === "string" ? [owners] : owners;
    };
    this.#addSource(
      source,
      ({ before, after }) => [...ownersOf(before), ...ownersOf(after)],
      (key) => ownersOf(this.lister(source).get(key)),
    );
  }

  /**
   * Adds the keys that `keysOf` returns for each change of an object, and those that `keysOfUndecodable` returns for the key
   * of an object that can't be decoded.
   */
  #addSource<S>(
    source: ObjectSource<S>,
    keysOf: (change: ObjectChange<S>) => Iterable<string | { readonly key: string }>,
    keysOfUndecodable: (key: string) => Iterable<string> = () => [],
  ): void {
    const known = this.#informers.get(source) as Informer<S> | undefined;
    const informer = known ?? (source instanceof TypedResource ? source.sharedInformer() : source);
    const add = (change: ObjectChange<S>): void => {
      for (const due of keysOf(change)) this.enqueue(typeof due === "string" ? due : due.key);
    };
    informer.addEventHandler({
      onAdd: (after) => add({ key: after.key, before: undefined, after }),
      onUpdate: (before, after) => add({ key: after.key, before, after }),
      onDelete: (gone) => add({ key: gone.key, before: lastKnown(gone), after: undefined }),
    });
    informer.listen({
      onError: (error) => {
        // It stops the informer, which is noticed anyway.
        if (error instanceof InformerFault) return;
        if (!(error instanceof HandlerError)) {
          for (const key of keysOfUndecodable(error.key)) this.enqueue(key);
        }
        // Once for each informer.
        if (known === undefined) this.#informerFailed(error);
      },
    });
    this.#informers.set(source, informer as Informer<unknown>);
  }

  #informerFailed(error: Exclude<InformerError, InformerFault>): void {
    const { onError } = this.#options;
    if (onError === undefined) emitWarning(error);
    else onError(error, error.key);
  }

  /** Runs until the signal is aborted, and rejects then or before. */
  async #runUntil(signal: AbortSignal, fail: (error: unknown) => void): Promise<void> {
    signal.throwIfAborted();
    this.#state = "syncing";
    const informers = [...this.#informers.values()];
    const stops = informers.map(({ stopped }) => {
      const stop = (): void => fail(stopped.reason);
      stopped.addEventListener("abort", stop);
      return () => stopped.removeEventListener("abort", stop);
    });
    try {
      for (const informer of informers) informer.start();
      await Promise.all(informers.map((informer) => informer.waitForSync(signal)));
      signal.throwIfAborted();
      this.#state = "running";
      this.#takeOver();
      this.#options.onSynced?.();
      await this.#work(signal, fail);
    } finally {
      for (const leave of stops) leave();
    }
  }

  async #work(signal: AbortSignal, fail: (error: unknown) => void): Promise<void> {
    const { onError } = this.#options;
    const report = (error: unknown, key: string): void => {
      try {
        onError?.(error, key);
      } catch (thrown) {
        fail(thrown);
      }
    };
    const running = runWorkers(this.#workers, this.#queue, (key) => this.#reconcile(key, signal), {
      ...{ signal, onError: onError && report },
    });
    const aborted = Promise.withResolvers<void>();
    const abort = (): void => aborted.resolve();
    signal.addEventListener("abort", abort);
    await Promise.race([running, aborted.promise]);
    signal.removeEventListener("abort", abort);
    this.#state = "stopping";
    const ms = this.#stopTimeoutMs;
    await within(running, { deadline: { clock: this.#clock, ms, expire: () => this.#late() } });
  }

  #late(): never {
    const keys = Array.from(this.#reconciling.keys(), (key) => JSON.stringify(key));
    throw new Error(
      `The controller ${JSON.stringify(this.name)} has stopped while ${keys.length} reconciles did not end in ` +
        `${this.#stopTimeoutMs} ms: ${keys.slice(0, 10).join(", ")}. Let reconcile end when its signal is aborted.`,
    );
  }

  async #reconcile(key: string, signal: AbortSignal): Promise<void> {
    this.#reconciling.set(key, this.#clock.now());
    try {
      const since = this.#ownedSince(key);
      if (this.#owns(key) && !this.#written.isCurrent(key, since)) {
        this.#metrics.waited();
        await this.#written.wait(key, signal, since);
      }
      // The key may also have been lost during the wait, and another one may have had it meanwhile.
      if (!this.#owns(key)) return this.#leaveOut(key);
      if (this.#ownedSince(key)?.revision !== since?.revision) return this.#queue.add(key);
      const object = this.lister(this.#options.for).get(key);
      const context = { ...this.#listers, signal, object };
      const result = await observeWrites(
        (write) => this.#written.add(key, write),
        () => this.#options.reconcile(key, context),
      );
      const { requeueAfterMs } = result ?? {};
      if (requeueAfterMs !== undefined) this.#queue.addAfter(key, requeueAfterMs);
      this.#metrics.reconciled(requeueAfterMs === undefined ? "success" : "requeue");
    } catch (error) {
      if (!signal.aborted) {
        this.#lastError = { key, error };
        this.#metrics.reconciled("error");
      }
      throw error;
    } finally {
      this.#reconciling.delete(key);
      this.#ended.notify();
    }
  }

  #owns(key: string): boolean {
    return this.#options.shard?.owns(key) !== false;
  }

  #ownedSince(key: string): OwnWrite | undefined {
    return this.#options.shard?.ownedSince?.(key);
  }

  #leaveOut(key: string): void {
    if (this.#leftOut.size >= this.#maxKeys && !this.#leftOut.has(key)) {
      throw new WorkQueueFullError(key, this.#maxKeys);
    }
    this.#leftOut.add(key);
  }

  /** Adds what was left out and is owned now, and leaves out what is not. */
  #takeOver(): void {
    for (const key of this.#leftOut) {
      if (this.#owns(key) && this.#leftOut.delete(key)) this.#queue.add(key);
    }
    // What another member has begun, or was to try again later, may end with it.
    for (const key of this.#informers.get(this.#options.for)?.indexer.keys() ?? []) {
      if (!this.#owns(key)) this.#leaveOut(key);
    }
  }

  #stopInformers(): Promise<void> {
    const stops = Array.from(this.#informers.values(), (informer) => informer.stop());
    return settledWithin(Promise.all(stops), this.#clock, this.#stopTimeoutMs);
  }
}
