import type { Clock } from "../../base/clock.ts";
import type { WatchFanoutError } from "../../base/errors.ts";
import type { EventType } from "../../model/event.ts";
import type { ListOrder, RevisionRequirement, Scope } from "../../storage/storage.ts";
import type { ServerOptions } from "../transport/platform.ts";
import type { Endpoint } from "./endpoints.ts";
import type { Token } from "./token-source.ts";

/** Options of `connect`. */
export interface ConnectOptions extends ServerOptions {
  /**
   * The bearer token that is sent with each call, as text, from a file or by a function. Without TLS it can be read on
   * the network. Default: none.
   */
  readonly token?: Token | undefined;
  /** Timeout of one call with all its retries, in milliseconds. A watch has no timeout. Default 10,000. */
  readonly timeoutMs?: number | undefined;
  /**
   * How long to wait for a connection, in milliseconds, before another server is tried, or a watch reports an
   * interruption; also for one to a server that has failed, if no other one is left. Default 3,000.
   */
  readonly connectTimeoutMs?: number | undefined;
  /**
   * Interval of keepalive pings on a connection with calls or watches, in milliseconds. The connection is closed if a
   * ping is not acknowledged within 5 s, or within this interval if that is shorter, and its watches continue at
   * another server. Default 10,000.
   */
  readonly keepaliveIntervalMs?: number | undefined;
  /**
   * Time without a response after which a read is also sent to another server, in milliseconds: the response that comes
   * first is used. A write is never sent twice. Default 1,000; Infinity: never.
   */
  readonly hedgingDelayMs?: number | undefined;
  /**
   * Maximum number of attempts of one call, over all servers. A write is retried only if it is certain that nothing
   * was written. Default 4; 1 disables retries.
   */
  readonly maxAttempts?: number | undefined;
  /**
   * Maximum size of a message from a server, in bytes, also after decompression. A server keeps messages below 4 MiB,
   * except for a single object or event that is larger, so this must be above twice the largest value of the store. A
   * larger message fails the call with VALUE_TOO_LARGE, and a write with OUTCOME_UNKNOWN. Default 32 MiB.
   */
  readonly maxMessageBytes?: number | undefined;
  /** Default: the system time, with timers that keep the process alive. */
  readonly clock?: Clock | undefined;
  /** Numbers from 0 to below 1, for jitter. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
  /**
   * The instance id of the relay whose calls these are. Before a server is used, it is asked whether the relay may follow
   * it. Default: the calls are not those of a relay.
   *
   * @internal
   */
  readonly relayId?: string | undefined;
}

/** Options of every call and watch. */
interface CommonOptions {
  /**
   * The history that the revisions belong to, from an earlier response. If the store has another history now, the
   * call fails with HISTORY_CHANGED and has no effect. Default: not checked.
   */
  readonly historyId?: string | undefined;
  /** Aborting it ends the call. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of every unary call. */
interface CallOptions extends CommonOptions {
  /** Timeout of this call, in milliseconds; of a list, for each page. Default: the timeout of the client. */
  readonly timeoutMs?: number | undefined;
  /**
   * The relays that the request has passed.
   *
   * @internal
   */
  readonly via?: string | undefined;
}

/** Options of `Client.resources`. */
export interface ResourcesOptions extends Pick<CallOptions, "signal" | "timeoutMs" | "via"> {
  /**
   * For relays: whether the path that the request has taken is checked up to the store.
   *
   * @internal
   */
  readonly checkPath?: boolean | undefined;
  /** The only server to ask: one that `onOpened` of a watch was called with. Default: any. */
  readonly server?: Endpoint | undefined;
}

/** Options of reads. */
export interface ReadOptions extends CallOptions {
  /** The minimum or exact revision of the result. Default: LINEARIZABLE. */
  readonly at?: RevisionRequirement | undefined;
  /** The only server to ask: one that `onOpened` of a watch was called with. Default: any. */
  readonly server?: Endpoint | undefined;
  /** The server to ask first, if it has not failed. Default: any. */
  readonly preferredServer?: Endpoint | undefined;
}

/** Selects objects by their content. If both selectors are given, both must match. */
export interface SelectorOptions {
  /** A label selector in Kubernetes' grammar: `app=web,tier in (a, b),!canary`. Default: all objects. */
  readonly labelSelector?: string | undefined;
  /** A selector on fields that the resource declares: `spec.node=n1,phase!=Failed`. Default: all objects. */
  readonly fieldSelector?: string | undefined;
}

/**
 * What of each object is sent: all of it; all but its value, which is then empty; or its labels and the fields that the
 * resource declares, as `attributes`, in place of its value.
 */
export type View = "FULL" | "KEYS" | "ATTRIBUTES";

/** What of each object is sent. */
export interface ViewOptions {
  /** Default FULL. */
  readonly view?: View | undefined;
  /**
   * The parts of each value that are sent: paths such as `spec.node`, through JSON objects or protobuf messages. The value
   * is then of its own format with nothing but these; if it can't be decoded, it is empty, and `attributes.isUndecodable`.
   * Only with view FULL. A server whose `ResourceInfo.views` lacks ATTRIBUTES sends whole values. Default, and without a
   * path: all of it.
   */
  readonly readMask?: readonly string[] | undefined;
}

/** Options of gets. */
export interface GetOptions extends ReadOptions, ViewOptions {}

/** Hashes from `first` to `last`, both included: of XXH64 with seed 0 of the UTF-8 bytes of a key. */
export interface HashRange {
  readonly first: bigint;
  readonly last: bigint;
}

/** The keys from one key up to another, by their UTF-8 bytes. Neither need be the key of an object. */
export interface KeyRange {
  /** The first key. Default: from the first one on. */
  readonly startKey?: string | undefined;
  /** The key behind the last one. Default: up to the last one. */
  readonly endKey?: string | undefined;
}

/** Options of counts. */
export interface CountOptions extends ReadOptions, SelectorOptions, KeyRange {
  /** Only keys with this prefix. Default: all keys. */
  readonly prefix?: string | undefined;
  /** Only keys with a hash in one of these ranges, such as those of `shardOf`. Default: all keys. */
  readonly shard?: readonly HashRange[] | undefined;
}

/** Options of lists. */
export interface ListOptions extends CountOptions, ViewOptions {
  /**
   * The order of the objects, over all pages. Default KEY_ASCENDING. Another one rejects with LIST_TOO_LARGE if the service
   * has to read the list from the store, and that has too many objects.
   */
  readonly order?: ListOrder | undefined;
  /** Maximum number of objects per page. Default 0: as many as fit in one message. */
  readonly pageSize?: number | undefined;
}

/** Options of a single page. */
export interface PageOptions extends ListOptions {
  /**
   * The `nextPageToken` of the previous page, which must have been requested with the same other options. Default:
   * the first page.
   */
  readonly pageToken?: string | undefined;
}

/** Options of the history of an object. */
export interface HistoryOptions extends Pick<ReadOptions, "historyId" | "signal" | "timeoutMs"> {
  /** Only changes up to this revision. Default: up to the current one, as a linearizable read has it. */
  readonly revision?: number | undefined;
  /** Maximum number of changes per page, at most 1,000. Default 0: 1,000, or as many as fit in one message. */
  readonly pageSize?: number | undefined;
  /** What of each object changes have. Default FULL. */
  readonly view?: View | undefined;
}

/** Options of a single page of a history. */
export interface HistoryPageOptions extends HistoryOptions {
  /** As in PageOptions. */
  readonly pageToken?: string | undefined;
}

/** Options of watches. */
export interface WatchOptions extends CommonOptions, SelectorOptions, ViewOptions {
  /** The keys to watch. Default: all. */
  readonly scope?: Scope | undefined;
  /** The range of keys to watch, which must have keys. Not together with `scope`. Default: all. */
  readonly range?: KeyRange | undefined;
  /** Delivers the changes after this revision. Default: the changes after the watch begins. */
  readonly afterRevision?: number | undefined;
  /**
   * Whether the watch begins with the current state. `afterRevision` is then the minimum revision of that state; 0
   * for any. Default false.
   */
  readonly sendInitialEvents?: boolean | undefined;
  /**
   * What a watch receives that can't keep up. EVERY_EVENT: every event, or SLOW_CONSUMER when the server no longer
   * has them. LATEST_STATE: the latest state of each object, without intermediate states. Default EVERY_EVENT.
   */
  readonly delivery?: "EVERY_EVENT" | "LATEST_STATE" | undefined;
  /** Only keys with a hash in one of these ranges, such as those of `shardOf`. Default: all keys. */
  readonly shard?: readonly HashRange[] | undefined;
  /** Only events of these types. With `sendInitialEvents`, ADDED must be one of them. Default: all types. */
  readonly eventTypes?: readonly EventType[] | undefined;
  /** Whether events include the state of the object before the change. Default false. */
  readonly includePrevious?: boolean | undefined;
  /**
   * Maximum time without a new resume point, in milliseconds, at least 1,000: after it the server sends a bookmark.
   * Default: the server's, 60 s.
   */
  readonly bookmarkIntervalMs?: number | undefined;
  /** Whether the server also sends a bookmark whenever it learns of a newer revision. Default false. */
  readonly eagerBookmarks?: boolean | undefined;
  /**
   * Maximum bytes of an incomplete batch that are held back. Beyond it the watch throws INVALID_REQUEST. Default 1
   * GiB.
   */
  readonly maxBatchBytes?: number | undefined;
  /** Whether the watch is resumed after an interruption; otherwise it throws the error. Default true. */
  readonly resume?: boolean | undefined;
  /**
   * Called with the server when a stream has sent its first response: for the first stream, and for each that resumes
   * it.
   */
  readonly onOpened?: ((server: Endpoint) => void) | undefined;
  /** Called when the watch was interrupted, before it is resumed. */
  readonly onInterruption?: ((interruption: Interruption) => void) | undefined;
}

/** Options of all writes. */
export interface WriteOptions extends CallOptions {
  /**
   * Identifies the request among all of the caller's, at most 128 bytes: best a random UUID. For some minutes a request with
   * the same id is not applied twice, at any replica: it is answered as the first one was. Default: the request is not
   * remembered. A service of a version without request ids ignores it.
   */
  readonly requestId?: string | undefined;
  /**
   * Whether the write is sent again, within `timeoutMs` and `maxAttempts`, if its answer was lost: with its `requestId`, or a
   * random one, so that it is applied once. OUTCOME_UNKNOWN then means that no server has answered. Default false.
   */
  readonly retryUnknown?: boolean | undefined;
}

/** Options of writes that may have conditions. */
export interface ConditionalWriteOptions extends WriteOptions {
  /**
   * Whether a failed condition is answered with the current objects: a put or delete rejects with a RevisionConflict. Needs the
   * right to get them. Default false.
   */
  readonly returnCurrent?: boolean | undefined;
}

/** Options of writes that can be checked without writing. */
export interface ValidateOptions {
  /**
   * Whether everything is checked, also the conditions, and nothing is written. A service of a version without this writes.
   * Default false.
   */
  readonly validateOnly?: boolean | undefined;
}

/** Options of transactions. */
export interface TransactionOptions extends ConditionalWriteOptions, ValidateOptions {
  /** Whether the results have what each operation replaced or deleted. Needs the right to get it. Default false. */
  readonly returnPrevious?: boolean | undefined;
}

/** Options of the deletion of a prefix. */
export interface DeletePrefixOptions extends WriteOptions, ValidateOptions {
  /** Confirms that the whole resource is meant, for an empty prefix. Default false. */
  readonly everyKey?: boolean | undefined;
}

/** Options of puts. */
export interface PutOptions extends ConditionalWriteOptions {
  /** The mod revision that the object must have; 0: the object must not exist. Default: not checked. */
  readonly expectedModRevision?: number | undefined;
  /** An existing lease to attach the object to. Default: no lease. */
  readonly lease?: bigint | undefined;
  /**
   * Lifetime of the object unless it is put again, in milliseconds. The service grants a lease of whole seconds,
   * rounded up. Not together with `lease`. Default: unlimited.
   */
  readonly ttlMs?: number | undefined;
}

/** Options of deletes. */
export interface DeleteOptions extends ConditionalWriteOptions {
  /** The mod revision that the object must have, at least 1. Default: not checked. */
  readonly expectedModRevision?: number | undefined;
}

/** A watch that was interrupted and will be resumed. */
export interface Interruption {
  /** Why the stream ended. */
  readonly error: WatchFanoutError;
  /** Time until the watch is opened again, in milliseconds. */
  readonly delayMs: number;
  /** The revision that the watch resumes after; undefined if nothing was delivered yet and it starts again. */
  readonly resumeRevision: number | undefined;
}
