import type { Reachability } from "../base/stream-backoff.ts";
import type { WatchBatch, WatchEvent } from "../model/event.ts";
import { compareKeys } from "../model/key-order.ts";
import type { StoredObject } from "../model/object.ts";

/**
 * Anything that can be listed and watched: etcd below one prefix, the embedded store, a Cacher around either.
 *
 * Keys are relative to the Storage. Every method that fails rejects with a WatchFanoutError, and every stream that
 * fails ends with one; aborting a call's signal rejects with the signal's reason.
 */
export interface Storage {
  get(request: GetRequest): Promise<GetResult>;
  list(request: ListRequest): Promise<ListResult>;
  /**
   * Reads a page of the history of one key. Absent: the storage has only the current state.
   *
   * Rejects with REVISION_TOO_OLD if the state at the request's revision is compacted. If it is compacted during the call,
   * the page ends before what is missing.
   */
  history?(request: HistoryRequest): Promise<HistoryResult>;
  /** Never throws: an invalid request ends the stream. */
  watch(request: WatchRequest): WatchStream;
  /**
   * Rejects with REVISION_CONFLICT if the expectation does not hold, LEASE_NOT_FOUND, VALUE_TOO_LARGE, STORAGE_FULL, or
   * OUTCOME_UNKNOWN if the request was sent and no response came.
   */
  put(request: PutRequest): Promise<WriteResult>;
  /** Rejects with OBJECT_NOT_FOUND for an absent key, otherwise as `put`. */
  delete(request: DeleteRequest): Promise<WriteResult>;
  /**
   * Estimates the number of keys at a revision, if that costs less than a list; keys that are no objects of the
   * resource may be counted. Absent if it does not.
   */
  count?(prefix: string, revision: number, signal?: AbortSignal): Promise<number>;
  /**
   * Returns what identifies the history that a state came from, if the store may have been restored from a backup: see
   * `WrittenObjects`. Absent if the history's id always identifies it. The watches of a storage that has it deliver whole
   * revisions: each batch has a revision.
   *
   * Rejects with HISTORY_CHANGED for a revision above the store's own, REVISION_TOO_OLD for a compacted one.
   */
  writtenAfter?(request: WrittenAfterRequest): Promise<WrittenObjects>;
  /**
   * The same store with raw keys, which clients of this service can't name: see `isRawKey` in model/key-bytes.ts. To be
   * closed as well. Absent if no key is raw.
   */
  withRawKeys?(): Storage;
  /**
   * The store's newest revision, linearizable. `historyId`: the history that it has to belong to; undefined or empty: any.
   * Only a storage that receives the id with the revision checks it: it rejects with HISTORY_CHANGED.
   */
  currentRevision(signal?: AbortSignal, historyId?: string): Promise<number>;
  /**
   * The revision that the storage has, without asking its own source: for readers that begin while that is away. Absent: it
   * has no other source.
   */
  cachedRevision?(signal?: AbortSignal): Promise<number>;
  /** Whether every watch ends with HISTORY_CHANGED when the history's id changes. Default: that has to be asked for. */
  readonly announcesHistory?: boolean | undefined;
  /**
   * Whether a watch may stay open while the store has another history already: that of a server which is still to find the
   * restore, and passes reads on meanwhile. Then only the history's id shows it. Default: a watch ends with its history.
   */
  readonly watchOutlivesHistory?: boolean | undefined;
  /** The id of the history that revisions belong to; empty if it can't be read. */
  historyId(signal?: AbortSignal): Promise<string>;
  /**
   * Gives the history a new id if it still has the id `known`, which is known to be outdated. Resolves to the id that
   * the history has then; empty if it can't be read.
   */
  renewHistory(known: string, signal?: AbortSignal): Promise<string>;
  /**
   * Requests a progress notification on every open watch: each soon delivers a batch whose revision is at least the
   * store's at this call, with or without events.
   */
  requestProgress(): void;
  /**
   * While the storage can't reach its own source: how long ago it last received anything from it, in milliseconds. Absent
   * or undefined: it is the source, or follows it.
   */
  readonly staleForMs?: number | undefined;
  /** What is known of the connections to the store's servers. Absent: nothing, and pauses of readers do not end early. */
  readonly reachability?: Reachability | undefined;
  /** Ends all streams and frees all memory. Idempotent. */
  close(): Promise<void>;
}

/** How recent a read has to be. */
export type RevisionRequirement =
  /** At least as new as every write that completed before the call began. */
  | { readonly match: "LINEARIZABLE" }
  /** Any available revision. */
  | { readonly match: "ANY" }
  | { readonly match: "NOT_OLDER_THAN"; readonly revision: number }
  | { readonly match: "EXACT"; readonly revision: number };

export interface GetRequest {
  readonly key: string;
  readonly at: RevisionRequirement;
  readonly signal?: AbortSignal | undefined;
}

export interface GetResult {
  /** The revision of the response. */
  readonly revision: number;
  /**
   * The id of the history that the response belongs to; empty if it is not known. Undefined if the storage has to be
   * asked for it.
   */
  readonly historyId?: string | undefined;
  readonly object: StoredObject | undefined;
}

export interface ListRequest {
  /** Only keys with this prefix; empty: all. */
  readonly prefix: string;
  /** Only keys of this interval. It may be empty. */
  readonly interval?: KeyInterval | undefined;
  /** Only keys that sort after this one: the last key of the page before. */
  readonly startAfter?: string | undefined;
  /** Maximum number of objects; 0: no limit. */
  readonly limit: number;
  /** Maximum size of all objects in bytes (`estimatedBytes`), but always at least one object; 0: no limit. */
  readonly maxBytes?: number | undefined;
  readonly at: RevisionRequirement;
  /** Whether values may be left empty, for callers that need only keys and revisions. */
  readonly keysOnly?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ListResult {
  /** The revision of the whole page. EXACT with it continues the list. */
  readonly revision: number;
  /** As that of a GetResult. */
  readonly historyId?: string | undefined;
  /** In key order. */
  readonly items: readonly StoredObject[];
  /** The same items in parts that responses share, so that each part is encoded once. */
  readonly chunks?: readonly (readonly StoredObject[])[] | undefined;
  /**
   * The key to start the next page after; undefined if this is the last page. A page may be short or empty and yet be
   * followed by another.
   */
  readonly next: string | undefined;
  /** Number of objects after this page; undefined if unknown. */
  readonly remaining: number | undefined;
}

export interface HistoryRequest {
  readonly key: string;
  /** Only changes up to this revision; undefined: up to the current one, which is linearizable. */
  readonly upTo: number | undefined;
  /** Maximum number of changes, at least 1. */
  readonly limit: number;
  /** Maximum size of all objects in bytes (`estimatedBytes`), but always at least one change. */
  readonly maxBytes: number;
  /** Whether values may be left empty. */
  readonly keysOnly?: boolean | undefined;
  /** The caller: callers take turns. Default: the request. */
  readonly owner?: object | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface HistoryResult {
  /** The page has no later changes: the request's `upTo`, or the revision of the store at some time during the call. */
  readonly revision: number;
  /** As that of a GetResult. */
  readonly historyId?: string | undefined;
  /**
   * The newest first, as a watch with `withPrevious` would deliver them, but without `previous`. None is missing between
   * two of them.
   */
  readonly events: readonly WatchEvent[];
  /**
   * `upTo` of the next page; undefined if this is the last one. A page may be short or empty and yet be followed by
   * another.
   */
  readonly next: number | undefined;
  /** Of the last page: all changes after this revision are known. */
  readonly oldestRevision: number | undefined;
  /** Whether the storage has gone back no further since that would cost too much, and there may be older changes. */
  readonly isLimited: boolean;
}

/** The order of a list. Objects with the same revision are in key order. */
export type ListOrder =
  | ("KEY_ASCENDING" | "KEY_DESCENDING")
  | ("MOD_REVISION_ASCENDING" | "MOD_REVISION_DESCENDING")
  | ("CREATE_REVISION_ASCENDING" | "CREATE_REVISION_DESCENDING");

export interface WrittenAfterRequest {
  readonly scope: Scope;
  /** The revision of the state in question. */
  readonly revision: number;
  /** Only objects that were written after this revision are returned. */
  readonly after: number;
  /** Maximum number of returned objects, at least 1. */
  readonly limit: number;
  readonly signal?: AbortSignal | undefined;
}

/** The state at one revision, as its newest objects and the number of all objects. */
export interface WrittenObjects {
  /** In key order, without values. */
  readonly written: readonly StoredObject[];
  /** Number of all objects in the scope. */
  readonly total: number;
}

/** The keys from `from` up to `to`, which is not included; `to` undefined: up to the last key of the resource. */
export interface KeyInterval {
  readonly from: string;
  readonly to: string | undefined;
}

/** One key, or the keys with a prefix; an empty prefix: all keys. */
export type Scope = { readonly key: string } | { readonly prefix: string };

/** The keys that a watch follows. */
export type WatchScope = Scope | KeyInterval;

export interface WatchRequest {
  readonly scope: WatchScope;
  /** Delivers events after this revision; undefined: after the current one. */
  readonly afterRevision: number | undefined;
  /**
   * The history that `afterRevision` belongs to. Undefined or empty: not checked. A storage that does not deliver the id
   * with its events does not check it.
   */
  readonly historyId?: string | undefined;
  /**
   * The reader takes nothing after this revision, which is at most the current one, and closes the stream when it has
   * everything up to it. A storage may use this to send less.
   */
  readonly upTo?: number | undefined;
  /**
   * With `upTo`: the number of such watches that are read at the same time, up to 16. A storage may hold their responses
   * whole then, and divide its memory for them: a quarter for each of up to 4 watches, a sixteenth for more. Undefined: it
   * receives responses in parts.
   */
  readonly concurrent?: number | undefined;
  /**
   * Maximum size of the batches that wait to be read, in bytes; above it nothing more is received until half of it was read.
   * A batch of any size is received. Default 16 MiB.
   */
  readonly maxHeldBytes?: number | undefined;
  /**
   * Whether the reader needs complete events: DELETED with the last content, and `previous`. Without it (for readers
   * that keep the state themselves) a DELETED event may have only the object's key and the revision of the deletion,
   * MODIFIED and ADDED say only whether the key existed, and `previous` is absent.
   */
  readonly withPrevious: boolean;
}

/** What a watch shows of itself to operators. Each member is computed when it is read. */
export interface WatchStatus {
  /** Such as "live" or "catching up". */
  readonly state: string;
  readonly scope: WatchScope;
  /** The label and the field selector, in canonical form; empty: all objects. */
  readonly selectors: { readonly label: string; readonly field: string };
  /** Revisions that its source has and its reader has not read; undefined before the first batch. */
  readonly lagRevisions: number | undefined;
  /** Fill level of its buffer, from 0 to 1. */
  readonly bufferFill: number;
  /**
   * When the oldest event that its reader has not read arrived, in the clock's milliseconds; undefined: it has read all, or
   * the time is not known, such as that of an initial state.
   */
  readonly unreadSince: number | undefined;
}

/** A client of several streams. */
export interface RoundReader {
  /** A round of events has been offered to all of them. Must not throw. */
  roundOffered(): void;
}

/**
 * A stream of batches. The reader pulls them, so a reader that does not read exerts back-pressure.
 *
 *     for (;;) {
 *       const batch = stream.read();
 *       if (batch === undefined) break;   // now `ended` says whether more will come
 *     }
 */
export interface WatchStream {
  /** The next batch; undefined if no batch waits now. */
  read(): WatchBatch | undefined;
  /**
   * Why the stream ended. Undefined while it is open, and until everything before the end has been read; `null` if its
   * reader closed it.
   */
  readonly ended: Error | null | undefined;
  /**
   * Sets the only listener. After a `read` that returned undefined, it is called once when there is something new to
   * read or the stream has ended; never from within `read` or `onReadable`.
   */
  onReadable(listener: () => void): void;
  /**
   * The reader has sent a part of the last batch. A stream that ends stalled readers needs this from a reader that
   * takes long over one batch.
   */
  accepted?(): void;
  /** Memory of the batches that wait to be read, in bytes, estimated. Absent if it is not known. */
  readonly heldBytes?: number;
  /**
   * Whether `read` may return more than a bookmark now. Absent if it is not known.
   * @internal
   */
  readonly hasPending?: boolean | undefined;
  /**
   * The revision up to which everything has been read, whether or not there were events. Undefined or absent: it has not,
   * or that is not known.
   * @internal
   */
  readonly syncedRevision?: number | undefined;
  /**
   * Calls the reader when every stream of the same source can read what has arrived with this one: for clients of several
   * streams, which send together what is new to all of them. Absent: a stream has no others.
   * @internal
   */
  readAfterOffers?(reader: RoundReader): void;
  /**
   * For operators. Absent if it is not known.
   * @internal
   */
  readonly status?: WatchStatus | undefined;
  /** Ends the stream and drops the unread batches. Idempotent. */
  close(): void;
}

export interface PutRequest {
  readonly key: string;
  readonly value: Uint8Array;
  /** undefined: write in any case; 0: the object must not exist; otherwise: its required mod revision. */
  readonly expectedModRevision?: number | undefined;
  /** An existing lease; undefined or 0n: no lease. Not together with `ttlSeconds`. */
  readonly lease?: bigint | undefined;
  /**
   * Attaches the object to a new lease of this many whole seconds, at least 1. If the put fails, the lease is revoked.
   */
  readonly ttlSeconds?: number | undefined;
  /**
   * The required history. If the store has another one, or its id can't be read, nothing is written and the call
   * rejects with HISTORY_CHANGED. Undefined or empty: any history.
   */
  readonly historyId?: string | undefined;
  /** The relays that the request has passed, for a storage that passes it on to another server. */
  readonly via?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface DeleteRequest {
  readonly key: string;
  /** undefined: delete in any case; otherwise (at least 1): its required mod revision. */
  readonly expectedModRevision?: number | undefined;
  /** As in PutRequest. */
  readonly historyId?: string | undefined;
  /** As in PutRequest. */
  readonly via?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface WriteResult {
  /** The revision of the write. */
  readonly revision: number;
  /** Put: the object as written. Delete: the object before the deletion. */
  readonly object: StoredObject;
  /**
   * The id of the history at the time of the write, empty if it can't be read. If it is not the expected one, the
   * revision belongs to another history. Undefined if the storage does not report it.
   */
  readonly historyId?: string | undefined;
}

/** Whether the key is in the interval. */
export function isBetween(key: string, { from, to }: KeyInterval): boolean {
  return compareKeys(key, from) >= 0 && (to === undefined || compareKeys(key, to) < 0);
}

/** Whether the key is in the scope. */
export function includesKey(scope: WatchScope, key: string): boolean {
  if ("key" in scope) return key === scope.key;
  return "prefix" in scope ? key.startsWith(scope.prefix) : isBetween(key, scope);
}
