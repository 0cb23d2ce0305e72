import { type Clock, keepAliveClock, type Timer } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import { guardedLogger, silentLogger } from "../../base/logger.ts";
import { abortable } from "../../base/wait.ts";
import { Reflector } from "../../reflector/reflector.ts";
import { checkKey } from "../../storage/checks.ts";
import type { Storage } from "../../storage/storage.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "./handlers/handler-registration.ts";
import { InformerFault, InformerReports, InformerStopped } from "./handlers/informer-errors.ts";
import { defaultQueueBytes, SharedProcessor } from "./handlers/shared-processor.ts";
import { Indexer, type ReadonlyIndexer } from "./indexer/indexer.ts";
import { Lister, type ListerOptions } from "./indexer/lister.ts";
import { IndexerUpdates, ObjectDecoder } from "./indexer-updates.ts";
import { InformerKeeping } from "./informer-keeping.ts";
import { InformerMetrics, type InformerStats } from "./informer-metrics.ts";
import {
  type InformerListeners,
  type RevisionWaitOptions,
  resyncPeriod,
  type SharedInformerOptions,
  type StopOptions,
  wholeNumber,
} from "./informer-options.ts";
import { InformerPipeline } from "./informer-pipeline.ts";
import { RevisionWaits } from "./revision-wait.ts";

const defaultMaxBytes = 1024 ** 3;

/**
 * A local cache of all objects of a storage, which calls handlers for every change. One list and one watch serve any
 * number of handlers and readers.
 *
 *     const informer = new SharedInformer({ storage, codec: jsonValues<Pod>() });
 *     informer.addEventHandler({ onAdd: (pod) => …, onUpdate: (before, pod) => …, onDelete: (pod) => … });
 *     informer.start();
 *     await informer.waitForSync(signal);
 *
 * It survives failures of the server and of the network: an interrupted watch is resumed. If events were lost, the
 * state is listed again and handlers are called for the differences. It ends when it is stopped, or when its client
 * or storage is closed. What handlers can rely on:
 *
 * - for each object, the calls are: it exists, then its changes, then its deletion; no state is older than the one
 *   before, and the last one is the latest state;
 * - a handler that keeps up is called for every change. Changes are coalesced by key if it does not keep up, and
 *   where the server coalesces them (a slow LATEST_STATE watch, a relist);
 * - when a handler is called, the Indexer has that state or a newer one.
 *
 * The Indexer is updated one key at a time: if one revision changed several objects, readers may see some of them
 * first.
 */
export class SharedInformer<T> {
  /** The name in errors and metrics. */
  readonly name: string;
  readonly #indexer: Indexer<TypedObject<T>>;
  readonly #clock: Clock;
  readonly #reports: InformerReports;
  readonly #pipeline: InformerPipeline<T>;
  readonly #reflector: Reflector;
  readonly #keeping: InformerKeeping | undefined;
  /** Undefined before the start. */
  #metrics: InformerMetrics | undefined;
  readonly #waits: RevisionWaits;
  readonly #resyncMs: number | undefined;
  readonly #processor: SharedProcessor<T>;
  readonly #synced = Promise.withResolvers<void>();
  /** The storage to close when the informer stops; undefined if the application closes it. */
  readonly #ownStorage: Storage | undefined;
  /** Aborted when it stops. */
  readonly #stopping = new AbortController();
  #state: "new" | "running" | "stopped" = "new";
  /** Why it has stopped, if it stopped by itself. */
  #endedBy: WatchFanoutError | undefined;
  #fault: InformerFault | undefined;
  #resyncTimer: Timer | undefined;
  /** Resolves when its own storage is closed. */
  #closed: Promise<void> | undefined;
  #rejected = 0;

  /**
   * Lists nothing before `start`. Throws INVALID_REQUEST for a scope with an invalid key, and for bounds out of
   * range.
   */
  constructor(options: SharedInformerOptions<T>) {
    const { name = "informer", codec, scope } = options;
    const logger = options.logger && guardedLogger(options.logger);
    if (scope !== undefined && "key" in scope) checkKey(scope.key);
    this.name = name;
    this.#clock = options.clock ?? keepAliveClock;
    this.#resyncMs = resyncPeriod(options.resyncMs);
    this.#ownStorage = options.closesStorage === true ? options.storage : undefined;
    this.#reports = new InformerReports(name, logger);
    this.listen(options);
    this.#indexer = new Indexer(options.indexers);
    const maxBytes = wholeNumber("maxBytes", options.maxBytes, 1) ?? defaultMaxBytes;
    this.#processor = new SharedProcessor({
      clock: this.#clock,
      isInitialListComplete: () => this.#pipeline.hasSynced,
      onError: (error) => this.#reports.failed(error),
      onCalled: (handler, ms) => this.#metrics?.called(handler, ms),
    });
    const decoder = new ObjectDecoder(codec, name, options.transform);
    const updates = new IndexerUpdates(this.#indexer, decoder, {
      onChange: (notification, isSync) => this.#processor.distribute(notification, isSync),
      onRejected: (error) => {
        this.#rejected++;
        this.#reports.failed(error);
      },
    });
    this.#pipeline = new InformerPipeline({
      known: this.#indexer,
      updates,
      clock: this.#clock,
      queueSize: wholeNumber("queueSize", options.queueSize),
      queueBytes: wholeNumber("queueBytes", options.queueBytes) ?? defaultQueueBytes,
      maxBytes,
      onTooLarge: () => this.#reflector.relist(),
      onSynced: () => this.#onSynced(),
      onFault: (error) => this.#fail(error),
    });
    const { keep } = options;
    const pipeline = this.#pipeline;
    this.#keeping =
      keep &&
      new InformerKeeping({
        ...{ keep, name, scope, clock: this.#clock, logger, target: pipeline },
        storage: options.storage,
        fits: (objects) => pipeline.fits(objects),
      });
    this.#reflector = new Reflector({
      storage: options.storage,
      target: this.#keeping ?? pipeline,
      loadKept: this.#keeping?.load.bind(this.#keeping),
      clock: this.#clock,
      logger: logger ?? silentLogger,
      random: options.random,
      scope,
      maxBytes,
      backoff: options.backoff,
      onFailure: (failure) => {
        if (failure.error instanceof ClosedError) this.#end(failure.error);
        this.#reports.interrupted(failure);
      },
      onRecovered: () => this.#reports.recovered(),
    });
    this.#waits = new RevisionWaits({
      ...{ storage: options.storage, pipeline: this.#pipeline, clock: this.#clock },
      stopped: this.#stopping.signal,
      handled: () => this.#processor.drain(),
      failure: () => this.#reflector.failure,
    });
    // A rejection is not unhandled if no caller waits for it.
    this.#synced.promise.catch(() => {});
  }

  /** The objects, for reading. Indexes can be added at any time, for lookups by anything but the key. */
  get indexer(): ReadonlyIndexer<TypedObject<T>> {
    return this.#indexer;
  }

  /** Whether the whole initial list is in the Indexer, or what was kept on disk, and the server has confirmed it. */
  get hasSynced(): boolean {
    return this.#pipeline.hasSynced;
  }

  /** Everything up to this revision is in the Indexer; undefined before the first list of a history is. */
  get revision(): number | undefined {
    return this.#pipeline.revision;
  }

  /** The history that the revision belongs to; empty if it is not known. */
  get historyId(): string {
    return this.#pipeline.historyId;
  }

  /** Time since anything was received, in milliseconds; undefined before. A quiet watch gets a bookmark every 60 s. */
  get silentMs(): number | undefined {
    return this.#pipeline.silentMs;
  }

  /** The last failure to list or watch; undefined if something was received since. */
  get failure(): WatchFanoutError | undefined {
    return this.#reflector.failure;
  }

  /** Whether it was stopped, or has stopped by itself. */
  get isStopped(): boolean {
    return this.#state === "stopped";
  }

  /** Aborted when it stops, also by itself; the reason is an InformerStopped or an InformerFault. */
  get stopped(): AbortSignal {
    return this.#stopping.signal;
  }

  /** The current numbers of the informer, as in its metrics. */
  stats(): InformerStats {
    return {
      objects: this.#indexer.size,
      pendingKeys: this.#pipeline.pendingKeys,
      relists: this.#reflector.relists,
      reconnects: this.#reflector.reconnects,
      rejected: this.#rejected,
      handlers: this.#processor.registrations,
    };
  }

  /** Starts to list and watch. Idempotent. Throws an InformerStopped after `stop`. */
  start(): void {
    if (this.#state === "stopped") throw this.#stoppedError();
    if (this.#state === "running") return;
    this.#state = "running";
    this.#metrics = new InformerMetrics(this.name, () => this.stats());
    this.#setResyncTimer();
    this.#reflector.run().catch((error: unknown) => this.#fail(error));
  }

  /**
   * Resolves when it has synced. Rejects with the signal's reason, or with an InformerStopped if it is stopped first.
   * While the server can't be reached it waits: see `onWatchError` and `failure`.
   */
  waitForSync(signal?: AbortSignal): Promise<void> {
    return abortable(this.#synced.promise, signal);
  }

  /**
   * Waits until everything up to `revision` is in the Indexer, so that reads of it, of its listers and indexes see every
   * write up to then: after a put, for example, with the revision of the put. That may be of any key and resource of the
   * same store: the revisions of a store are one sequence. Values that can't be decoded are left out as always. With
   * `handlers`, their calls have ended as well.
   *
   * The service is asked for its progress at once, so this takes about as long as a read, also if the resource does not change.
   *
   * Rejects with HISTORY_CHANGED if the store was restored during the wait, or is found to be at a lower revision: then
   * the revision is of another history, or another store. Rejects with UPSTREAM_UNAVAILABLE or REVISION_TOO_NEW after
   * `timeoutMs`, with the signal's reason, and with an InformerStopped if the informer stops.
   */
  waitForRevision(revision: number, options: RevisionWaitOptions = {}): Promise<void> {
    return this.#waits.wait(revision, options);
  }

  /**
   * Adds a handler, at any time. It is called for the current objects, then for changes. No call is made before this
   * returns. Throws an InformerStopped after `stop`, and INVALID_REQUEST for bounds out of range.
   */
  addEventHandler(
    handler: EventHandler<T>,
    options: EventHandlerOptions = {},
  ): EventHandlerRegistration {
    return this.addHandlerOf(this, handler, options);
  }

  /**
   * The same for a handler of a part of the program, whose handlers `removeHandlersOf` removes.
   * @internal
   */
  addHandlerOf(
    owner: object,
    handler: EventHandler<T>,
    options: EventHandlerOptions,
  ): EventHandlerRegistration {
    if (this.#state === "stopped") throw this.#stoppedError();
    wholeNumber("queueSize", options.queueSize);
    wholeNumber("queueBytes", options.queueBytes);
    return this.#processor.add(handler, options, this.#indexer.list(), owner);
  }

  /**
   * Resolves when the calls in progress have ended, and rejects with the signal's reason.
   * @internal
   */
  removeHandlersOf(owner: object, signal: AbortSignal | undefined): Promise<void> {
    return this.#processor.removeOf(owner, signal);
  }

  /** Returns a Lister of the objects, for lookups by namespace and selector. */
  lister(options?: ListerOptions<T>): Lister<T> {
    return new Lister(this.#indexer, options);
  }

  /**
   * Stops listing and watching, removes all handlers, and waits for their calls in progress. With `drain`, handlers
   * are first called for everything that has arrived. Rejects with the signal's reason if that is aborted first; the
   * informer is stopped nevertheless. The objects remain readable. Idempotent.
   *
   * A handler that calls this must not await it, since that would wait for itself.
   */
  async stop({ drain = false, signal }: StopOptions = {}): Promise<void> {
    this.#halt();
    try {
      if (drain) await abortable(this.drain(), signal);
    } finally {
      this.#removeHandlers();
    }
    const kept = this.#keeping?.close();
    await abortable(Promise.all([this.#processor.ended, this.#closed, kept]), signal);
  }

  /** The same as `stop`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Adds listeners to those of the options. Returns a function that removes them. */
  listen(listeners: InformerListeners): () => void {
    return this.#reports.listen(listeners);
  }

  /**
   * Resolves when handlers were called for everything that has arrived.
   * @internal
   */
  async drain(): Promise<void> {
    await this.#pipeline.drain();
    await this.#processor.drain();
  }

  /** Stops receiving. */
  #halt(): void {
    if (this.#state === "running") this.#metrics?.close();
    this.#state = "stopped";
    this.#reflector.stop();
    void this.#keeping?.close();
    this.#resyncTimer?.cancel();
    const why = this.#fault ?? this.#stoppedError();
    this.#synced.reject(why);
    this.#stopping.abort(why);
    this.#closed ??= this.#ownStorage?.close();
    // The caller of `stop` gets the error; the informer may have stopped by itself.
    this.#closed?.catch(() => {});
  }

  /** Stops since the client or storage is closed. */
  #end(why: WatchFanoutError): void {
    this.#endedBy = why;
    this.#halt();
    this.#removeHandlers();
  }

  #removeHandlers(): void {
    this.#pipeline.close();
    this.#processor.removeAll();
  }

  /** Stops at an error that indicates a bug in this library or in the Storage. */
  #fail(cause: unknown): void {
    const fault = new InformerFault(this.name, cause);
    this.#fault = fault;
    this.#halt();
    this.#removeHandlers();
    // Objects that are no longer updated must not go unnoticed.
    if (!this.#reports.faulted(fault)) throw fault;
  }

  #onSynced(): void {
    this.#synced.resolve();
    this.#processor.checkSynced();
  }

  #setResyncTimer(): void {
    if (this.#resyncMs === undefined) return;
    this.#resyncTimer = this.#clock.setTimeout(() => {
      this.#pipeline.resync();
      this.#setResyncTimer();
    }, this.#resyncMs);
  }

  #stoppedError(): InformerStopped {
    const name = JSON.stringify(this.name);
    const why = this.#endedBy;
    return why === undefined
      ? new InformerStopped(`The informer ${name} was stopped.`)
      : new InformerStopped(`The informer ${name} has stopped: ${why.message}`, { cause: why });
  }
}
