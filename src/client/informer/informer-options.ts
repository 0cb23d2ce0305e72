import type { BackoffBounds } from "../../base/backoff.ts";
import { type Clock, maxTimerMs } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";
import type { Logger } from "../../base/logger.ts";
import type { OwnCredentials } from "../../cache-files/user-of.ts";
import type { ReflectorFailure } from "../../reflector/reflector.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { InformerError } from "./handlers/informer-errors.ts";
import type { Indexers } from "./indexer/indexer.ts";

/** What an informer reports. A listener that throws is reported itself. */
export interface InformerListeners {
  /**
   * Called with errors of the codec, the transform, index functions and handlers. Default: they are logged, or,
   * without a logger, emitted as process warnings (`process.emitWarning`); an InformerFault is thrown as an uncaught
   * exception.
   */
  readonly onError?: ((error: InformerError) => void) | undefined;
  /**
   * Called with each failure to list or watch, and with the next step. The informer retries indefinitely: to give up
   * at a reason (PERMISSION_DENIED, UNKNOWN_RESOURCE), call `stop` here. The informer stops by itself only if its
   * client or storage is closed first (`isStopped`); this is then the last call. Default: failures are logged, or,
   * without a logger, repeated failures are emitted as a process warning.
   */
  readonly onWatchError?: ((failure: ReflectorFailure) => void) | undefined;
  /**
   * Called when the watch works again after failures, or when the server has confirmed what was kept on disk: something was
   * received, if only that nothing has changed. The Indexer may not have applied it yet. Default: ignored.
   */
  readonly onRecovered?: (() => void) | undefined;
}

/** Where an informer keeps its state when the program ends. */
export interface KeepOptions {
  /**
   * A folder for this informer alone, on a local disk. It is created, for this user only. One process uses it at a time; the
   * informer of another one keeps nothing. Its size is up to twice that of the objects, with logs of at least 16 MiB.
   */
  readonly folder: string;
  /**
   * What decides which objects there are, beside the scope: what is kept with another text is not used. Default of
   * TypedResource: the resource and the selectors; otherwise the name of the informer.
   */
  readonly source?: string | undefined;
  /**
   * Returns what the server recognises the user by: what is kept of another user is not used.
   *
   * @internal
   */
  readonly credentials?: ((signal: AbortSignal) => Promise<OwnCredentials>) | undefined;
}

/** Options of a SharedInformer. */
export interface SharedInformerOptions<T> extends InformerListeners {
  /**
   * The storage with the objects, normally a RemoteStorage. The application closes it after the informer, unless
   * `closesStorage` is set.
   */
  readonly storage: Storage;
  /** Whether the informer closes the storage when it stops. Default false. */
  readonly closesStorage?: boolean | undefined;
  /** Decodes the values. */
  readonly codec: ValueCodec<T>;
  /** The name in errors and metrics, for example that of the resource. Default: "informer". */
  readonly name?: string | undefined;
  /** The keys to watch: a prefix or a single key. Default: all. */
  readonly scope?: Scope | undefined;
  /**
   * Changes an object before it is stored and handlers are called: to drop unused fields, for example. May return
   * another object with the same key.
   */
  readonly transform?: ((object: TypedObject<T>) => TypedObject<T>) | undefined;
  /** Index functions of the Indexer, by name. More can be added later. */
  readonly indexers?: Indexers<TypedObject<T>> | undefined;
  /** Resync period: how often handlers are called for all objects again, in milliseconds. Default 0: never. */
  readonly resyncMs?: number | undefined;
  /**
   * Maximum number of changes that are queued one by one for the Indexer; beyond it they are coalesced by key. The
   * queue grows only while the codec, the transform and the index functions are busy. Default 10,000.
   */
  readonly queueSize?: number | undefined;
  /** Maximum bytes of objects, as stored, in this queue; beyond it they are coalesced too. Default 64 MiB. */
  readonly queueBytes?: number | undefined;
  /**
   * Maximum bytes of all objects, as stored. A state that exceeds it is not applied: the informer keeps its current
   * state, reports INVALID_REQUEST as a list failure, and keeps listing until the state fits. So a faulty server
   * can't exhaust the memory. Default 1 GiB.
   */
  readonly maxBytes?: number | undefined;
  /**
   * Keeps the state on disk (Node.js only): the next start has it at once, without a list. The handlers and the Indexer get it
   * before the server is reached; `hasSynced` and `revision` follow when the server has confirmed it. Default: it is listed.
   */
  readonly keep?: KeepOptions | undefined;
  /** Pauses before a list or watch is retried. Default: from 100 ms, doubling up to 5 s. */
  readonly backoff?: BackoffBounds | undefined;
  /** Default: the system time, with timers that keep the process alive until the informer is stopped. */
  readonly clock?: Clock | undefined;
  /** Default: no logging. What it throws is emitted as a process warning. */
  readonly logger?: Logger | undefined;
  /** Numbers from 0 to below 1, for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

/** Options of `waitForRevision`. */
export interface RevisionWaitOptions {
  /** Aborting it rejects the wait with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Maximum time of the wait, in milliseconds. Default 10,000. */
  readonly timeoutMs?: number | undefined;
  /** Whether handlers must have been called for everything up to the revision, too. Default false. */
  readonly handlers?: boolean | undefined;
}

/** Options of `SharedInformer.stop`. */
export interface StopOptions {
  /** Whether handlers are first called for everything that has arrived. Default false: only calls in progress end. */
  readonly drain?: boolean | undefined;
  /** Limits the wait for handlers: `AbortSignal.timeout(5_000)`, for example. Default: unlimited. */
  readonly signal?: AbortSignal | undefined;
}

/** The resync period in milliseconds; undefined for never, which 0 means as in client-go. */
export function resyncPeriod(ms: number | undefined): number | undefined {
  if (ms === undefined || ms === 0) return undefined;
  if (ms >= 1 && ms <= maxTimerMs) return ms;
  throw invalidRequest(
    "resyncMs",
    `resyncMs is ${ms}: it must be from 1 to ${maxTimerMs}, or 0 for never.`,
  );
}

/** Checks a bound. Throws INVALID_REQUEST unless it is undefined or a whole number of at least `least`. */
export function wholeNumber(
  option: string,
  size: number | undefined,
  least = 0,
): number | undefined {
  if (size === undefined || (Number.isInteger(size) && size >= least)) return size;
  throw invalidRequest(
    option,
    `${option} is ${size}: it must be a whole number, at least ${least}.`,
  );
}
