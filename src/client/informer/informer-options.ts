import type { Logger } from "pino";
import type { BackoffBounds } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import type { ReflectorFailure } from "../../reflector/reflector.ts";
import type { Scope, Storage } from "../../storage/storage.ts";
import type { TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import type { InformerError } from "./handlers/informer-errors.ts";
import type { Indexers } from "./indexer/indexer.ts";

export interface SharedInformerOptions<T> {
  /** Where the objects are: a RemoteStorage, as a rule. It is the user's to close, after the informer, unless: */
  readonly storage: Storage;
  /** Whether the informer closes the storage when it stops. Default: no. */
  readonly closesStorage?: boolean | undefined;
  readonly codec: ValueCodec<T>;
  /** What it is called in errors and metrics: the resource, for instance. Default: "informer". */
  readonly name?: string | undefined;
  /** Which keys to follow: those that begin with a prefix, or a single one. Default: all. */
  readonly scope?: Scope | undefined;
  /**
   * Changes an object before it is stored and told of: leaves out what nobody needs, for instance. May return
   * another object, of the same key.
   */
  readonly transform?: ((object: TypedObject<T>) => TypedObject<T>) | undefined;
  /** Index functions of the informer's Indexer, by name. More can be added later. */
  readonly indexers?: Indexers<TypedObject<T>> | undefined;
  /** How often handlers are told of all objects again, in milliseconds. Default, and 0: never. */
  readonly resyncMs?: number | undefined;
  /**
   * How many changes wait one by one for the Indexer; beyond that they fold by key. The Indexer is made
   * to wait only by what its index functions, the transform and the codec take. Default 10,000.
   */
  readonly queueSize?: number | undefined;
  /** How many bytes of objects, as they are stored, these may keep; beyond that they fold too. Default 64 MiB. */
  readonly queueBytes?: number | undefined;
  /**
   * How many bytes of objects it may hold, as they are stored. What does not fit is not taken in: the informer keeps
   * what it has, tells of INVALID_REQUEST as of any other failure to list, and lists again until it fits. So a server
   * that never comes to an end does not fill the process. Default 1 GiB.
   */
  readonly maxBytes?: number | undefined;
  /**
   * Told of what went wrong in the codec, transform, index functions and handlers. Default: it is logged, and
   * without a logger it becomes a warning of the process (`process.emitWarning`); an InformerFault is thrown
   * where nobody catches it.
   */
  readonly onError?: ((error: InformerError) => void) | undefined;
  /**
   * Told of each failure of listing and watching, and of what is done about it. The informer tries again for
   * ever: whoever wants to give up at a reason (PERMISSION_DENIED, UNKNOWN_RESOURCE) stops it here. Only where the
   * client or the storage was closed before the informer has it stopped by itself (`isStopped`), and this is the last
   * call. Default: they are logged, and without a logger it becomes a warning of the process that the informer does
   * not get on.
   */
  readonly onWatchError?: ((failure: ReflectorFailure) => void) | undefined;
  /**
   * Told when the informer gets on again after one or more failures: something has come, be it only that nothing has
   * changed meanwhile. The Indexer may have yet to take it in. Default: nobody is.
   */
  readonly onRecovered?: (() => void) | undefined;
  /** How long to wait before listing or watching is tried again. Default 100 ms, growing to 5 s. */
  readonly backoff?: BackoffBounds | undefined;
  /** Default: the machine's own time, which keeps the process alive until the informer is stopped. */
  readonly clock?: Clock | undefined;
  /** Default: nothing is logged. */
  readonly logger?: Logger | undefined;
  /** Numbers from 0 up to 1, for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

export interface StopOptions {
  /** Whether handlers are still told of what has arrived. Default: no; only calls that are being made end. */
  readonly drain?: boolean | undefined;
  /** For how long to wait for handlers: `AbortSignal.timeout(5_000)`, for instance. Default: without end. */
  readonly signal?: AbortSignal | undefined;
}
