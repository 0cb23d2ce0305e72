import { type Logger, pino } from "pino";
import { abortable } from "../../base/abort.ts";
import { type Clock, keepAliveClock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { invalidRequest, type WatchFanoutError } from "../../base/errors.ts";
import { Reflector, type ReflectorFailure } from "../../reflector/reflector.ts";
import { checkKey } from "../../storage/checks.ts";
import type { Storage } from "../../storage/storage.ts";
import { ClosedError } from "../calls/call-failure.ts";
import type { TypedObject } from "../values/typed-object.ts";
import { ErrorReporter } from "./error-reports.ts";
import type {
  EventHandler,
  EventHandlerOptions,
  EventHandlerRegistration,
} from "./handlers/event-handler.ts";
import { InformerFault, InformerStopped } from "./handlers/informer-errors.ts";
import { defaultQueueBytes, SharedProcessor } from "./handlers/shared-processor.ts";
import { Indexer, type ReadonlyIndexer } from "./indexer/indexer.ts";
import { Lister, type ListerOptions } from "./indexer/lister.ts";
import { IndexerUpdates } from "./indexer-updates.ts";
import { InformerMetrics, type InformerStats } from "./informer-metrics.ts";
import type { SharedInformerOptions, StopOptions } from "./informer-options.ts";
import { InformerPipeline } from "./informer-pipeline.ts";
import { ObjectDecoder } from "./object-decoder.ts";
import { WatchWarnings } from "./watch-warnings.ts";

const defaultMaxBytes = 1024 ** 3;

/**
 * Keeps all objects of a storage at hand, and tells handlers of every change. One list and one watch serve
 * any number of handlers and readers.
 *
 *     const informer = new SharedInformer({ storage, codec: jsonValues<Pod>() });
 *     informer.addEventHandler({ onAdd: (pod) => …, onUpdate: (before, pod) => …, onDelete: (pod) => … });
 *     informer.start();
 *     await informer.waitForSync(signal);
 *
 * It goes on through whatever happens to the server and to the network: a watch that breaks is resumed, and
 * only when what came meanwhile is lost is the state listed again, and handlers are told the difference. It ends when
 * it is stopped, or when what it stands on is closed. What handlers are told:
 *
 * - of each object, that it is there, then its changes, then that it is gone; never a state older than one
 *   before, and in the end the newest one;
 * - every change, as long as the handler keeps up. Changes fold by key where it does not, and where the server
 *   folds them (a LATEST_STATE watch that is slow, a relist);
 * - only what the Indexer holds already, or a newer state.
 *
 * The Indexer is brought up to date one key at a time: of a revision that wrote several, some may be there
 * before the others.
 */
export class SharedInformer<T> {
  readonly name: string;
  readonly #indexer: Indexer<TypedObject<T>>;
  readonly #clock: Clock;
  readonly #reports: ErrorReporter;
  readonly #pipeline: InformerPipeline<T>;
  readonly #reflector: Reflector;
  readonly #metrics: InformerMetrics;
  readonly #resyncMs: number | undefined;
  readonly #processor: SharedProcessor<T>;
  readonly #synced = Promise.withResolvers<void>();
  /** What is closed when the informer stops; undefined: nothing. */
  readonly #ownStorage: Storage | undefined;
  #state: "new" | "running" | "stopped" = "new";
  /** Why it has stopped, if nobody has stopped it. */
  #endedBy: WatchFanoutError | undefined;
  #resyncTimer: Timer | undefined;
  /** Resolves when its own storage is closed. */
  #closed: Promise<void> | undefined;
  #rejected = 0;

  /** Throws INVALID_REQUEST of a scope whose key can't be one, and of numbers that are no bounds. */
  constructor(options: SharedInformerOptions<T>) {
    const { name = "informer", codec, logger, scope } = options;
    if (scope !== undefined && "key" in scope) checkKey(scope.key);
    const { onWatchError = watchErrors(name, logger) } = options;
    this.name = name;
    this.#clock = options.clock ?? keepAliveClock;
    this.#resyncMs = resyncPeriod(options.resyncMs);
    this.#ownStorage = options.closesStorage === true ? options.storage : undefined;
    this.#reports = new ErrorReporter(options.onError, logger);
    this.#indexer = new Indexer(options.indexers);
    const maxBytes = wholeNumber("maxBytes", options.maxBytes, 1) ?? defaultMaxBytes;
    this.#processor = new SharedProcessor({
      clock: this.#clock,
      isInitialListComplete: () => this.#pipeline.hasSynced,
      onError: (error) => this.#reports.report(error),
      onCalled: (handler, ms) => this.#metrics.called(handler, ms),
    });
    const decoder = new ObjectDecoder(codec, name, options.transform);
    const updates = new IndexerUpdates(this.#indexer, decoder, {
      onChange: (notification, isSync) => this.#processor.distribute(notification, isSync),
      onRejected: (error) => {
        this.#rejected++;
        this.#reports.report(error);
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
    this.#metrics = new InformerMetrics(name, () => this.stats());
    this.#reflector = new Reflector({
      storage: options.storage,
      target: this.#pipeline,
      clock: this.#clock,
      logger: logger ?? pino({ level: "silent" }),
      random: options.random,
      scope,
      maxBytes,
      backoff: options.backoff,
      onFailure: (failure) => {
        if (failure.error instanceof ClosedError) this.#end(failure.error);
        this.#reports.call(() => onWatchError(failure));
      },
      onRecovered: () => this.#reports.call(() => options.onRecovered?.()),
    });
    // Not everyone waits for it.
    this.#synced.promise.catch(() => {});
  }

  /** The objects, for reading. Who looks up by something else than the key adds an index, at any time. */
  get indexer(): ReadonlyIndexer<TypedObject<T>> {
    return this.#indexer;
  }

  /** Whether the first state is in the Indexer, wholly. */
  get hasSynced(): boolean {
    return this.#pipeline.hasSynced;
  }

  /** Everything up to this revision is in the Indexer; undefined before it has synced. */
  get revision(): number | undefined {
    return this.#pipeline.revision;
  }

  /** Why listing or watching failed the last time; undefined once anything has come since. */
  get failure(): WatchFanoutError | undefined {
    return this.#reflector.failure;
  }

  get isStopped(): boolean {
    return this.#state === "stopped";
  }

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

  /** Begins to list and to watch. Harmless when called twice; throws an InformerStopped after `stop`. */
  start(): void {
    if (this.#state === "stopped") throw this.#stoppedError();
    if (this.#state === "running") return;
    this.#state = "running";
    this.#metrics.register();
    this.#setResyncTimer();
    this.#reflector.run().catch((error: unknown) => this.#fail(error));
  }

  /**
   * Resolves once it has synced. Rejects with the signal's reason, or with an InformerStopped if it is stopped
   * before. As long as the server can't be reached it waits: `onWatchError` and `failure` tell why.
   */
  waitForSync(signal?: AbortSignal): Promise<void> {
    return abortable(this.#synced.promise, signal);
  }

  /**
   * Adds a handler, at any time: it is told of the objects that are there now, then of what comes. No call is
   * made before this returns. Throws an InformerStopped after `stop`.
   */
  addEventHandler(
    handler: EventHandler<T>,
    options: EventHandlerOptions = {},
  ): EventHandlerRegistration {
    if (this.#state === "stopped") throw this.#stoppedError();
    wholeNumber("queueSize", options.queueSize);
    wholeNumber("queueBytes", options.queueBytes);
    return this.#processor.add(handler, options, this.#indexer.list());
  }

  /** The objects by namespace and selector. */
  lister(options?: ListerOptions<T>): Lister<T> {
    return new Lister(this.#indexer, options);
  }

  /**
   * Ends listing and watching, removes all handlers, and waits for the calls of them that are being made. With
   * `drain`, they are first told of what has arrived. Rejects with the signal's reason if that comes first, and
   * is stopped then all the same. The objects stay to be read. Harmless when called twice.
   *
   * A handler that calls this must not wait for it: that would be to wait for itself.
   */
  async stop({ drain = false, signal }: StopOptions = {}): Promise<void> {
    this.#halt();
    try {
      if (drain) await abortable(this.#drain(), signal);
    } finally {
      this.#removeHandlers();
    }
    await abortable(Promise.all([this.#processor.ended, this.#closed]), signal);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Nothing arrives any more. */
  #halt(): void {
    if (this.#state === "running") this.#metrics.unregister();
    this.#state = "stopped";
    this.#reflector.stop();
    this.#resyncTimer?.cancel();
    this.#synced.reject(this.#stoppedError());
    this.#closed ??= this.#ownStorage?.close();
    // Whoever stops it is told; it may have stopped by itself.
    this.#closed?.catch(() => {});
  }

  /** What it stands on is closed, so that nothing will ever come. */
  #end(why: WatchFanoutError): void {
    this.#endedBy = why;
    this.#halt();
    this.#removeHandlers();
  }

  async #drain(): Promise<void> {
    await this.#pipeline.drain();
    await this.#processor.drain();
  }

  #removeHandlers(): void {
    this.#pipeline.close();
    this.#processor.removeAll();
  }

  /** What can't be gone on after: a fault of ours, or a Storage that fails with what no Storage may. */
  #fail(cause: unknown): void {
    const fault = new InformerFault(this.name, cause);
    this.#synced.reject(fault);
    this.#halt();
    this.#removeHandlers();
    // Objects that nobody brings up to date any more are not to go unnoticed.
    if (!this.#reports.reportFault(fault)) throw fault;
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

/** Who is told of failures to list and watch where the user has named nobody: the logger knows of them anyway. */
function watchErrors(name: string, logger: Logger | undefined) {
  const warnings = new WatchWarnings(name);
  return (failure: ReflectorFailure): void => {
    if (logger !== undefined) return;
    if (failure.error instanceof ClosedError) warnings.stopped(failure.error.message);
    else warnings.failed(failure);
  };
}

/** In milliseconds, as a timer takes it; 0 is never, as in client-go. */
function resyncPeriod(ms: number | undefined): number | undefined {
  if (ms === undefined || ms === 0) return undefined;
  if (ms >= 1 && ms <= maxTimerMs) return ms;
  throw invalidRequest(
    "resyncMs",
    `resyncMs is ${ms}: it has to be from 1 to ${maxTimerMs}, or 0 for never.`,
  );
}

function wholeNumber(option: string, size: number | undefined, least = 0): number | undefined {
  if (size === undefined || (Number.isInteger(size) && size >= least)) return size;
  throw invalidRequest(
    option,
    `${option} is ${size}: it has to be a whole number, from ${least} on.`,
  );
}
