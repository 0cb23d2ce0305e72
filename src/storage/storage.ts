import type { WatchBatch } from "../model/event.ts";
import type { StoredObject } from "../model/object.ts";
import type { Predicate } from "../model/predicate.ts";

/**
 * Everything that can be listed and watched: etcd below one prefix, the embedded store, a Cacher around
 * either.
 *
 * Keys are relative to what the Storage is of. Every method that fails rejects with (and every stream
 * that ends, ends with) a WatchFanoutError; aborting a call's signal rejects with the signal's reason.
 */
export interface Storage {
  get(request: GetRequest): Promise<GetResult>;
  list(request: ListRequest): Promise<ListResult>;
  /** Never throws: what is wrong with the request ends the stream. */
  watch(request: WatchRequest): WatchStream;
  /**
   * Rejects with REVISION_CONFLICT if the expectation does not hold, LEASE_NOT_FOUND, VALUE_TOO_LARGE,
   * STORAGE_FULL, or OUTCOME_UNKNOWN if it was sent and no answer came.
   */
  put(request: PutRequest): Promise<WriteResult>;
  /** Rejects with OBJECT_NOT_FOUND of an absent key, otherwise as `put`. */
  delete(request: DeleteRequest): Promise<WriteResult>;
  /**
   * About how many keys there were at a revision, where that takes less than to list them: those that can't be
   * part of the resource may be among them. Absent where it does not.
   */
  count?(prefix: string, revision: number, signal?: AbortSignal): Promise<number>;
  /**
   * What tells the history that a state came from, where the store may have been put back to an older one: see
   * `WrittenObjects`. Absent where the history's id tells that in any case.
   *
   * Rejects with HISTORY_CHANGED for a revision above the store's own, REVISION_TOO_OLD for one that is compacted.
   */
  writtenAfter?(request: WrittenAfterRequest): Promise<WrittenObjects>;
  /** The store's newest revision, linearizable. */
  currentRevision(signal?: AbortSignal): Promise<number>;
  /** The id of the history that revisions belong to; empty where it can't be known. */
  historyId(signal?: AbortSignal): Promise<string>;
  /**
   * Gives the history another id than `known`, which it was found not to be, unless it has one already.
   * Resolves to the id that it has then; empty where it can't be known.
   */
  renewHistory(known: string, signal?: AbortSignal): Promise<string>;
  /**
   * Asks that every open watch be told how far it has come: each soon delivers a batch whose revision
   * is at least what the store's was at this call, if need be without events.
   */
  requestProgress(): void;
  /** Ends all streams and frees what is held. Harmless when called twice. */
  close(): Promise<void>;
}

/** How new a read has to be. */
export type RevisionRequirement =
  /** At least as new as every write that completed before the call began. */
  | { readonly match: "LINEARIZABLE" }
  /** Whatever is at hand. */
  | { readonly match: "ANY" }
  | { readonly match: "NOT_OLDER_THAN"; readonly revision: number }
  | { readonly match: "EXACT"; readonly revision: number };

export interface GetRequest {
  readonly key: string;
  readonly at: RevisionRequirement;
  readonly signal?: AbortSignal | undefined;
}

export interface GetResult {
  /** The revision that the answer is true at. */
  readonly revision: number;
  readonly object: StoredObject | undefined;
}

export interface ListRequest {
  /** Only keys that begin with this; empty: all. */
  readonly prefix: string;
  /** Only keys that sort after this one: the last key of the page before. */
  readonly startAfter?: string | undefined;
  /** How many objects at the most; 0: no limit. */
  readonly limit: number;
  /**
   * How many bytes of objects (by `estimatedBytes`) at the most, but always at least one object; 0: no limit.
   */
  readonly maxBytes?: number | undefined;
  readonly at: RevisionRequirement;
  readonly predicate?: Predicate | undefined;
  /** Whether values may be left empty, for who wants to know only what stands. Not with `predicate`. */
  readonly keysOnly?: boolean | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface ListResult {
  /** The revision that the whole page is true at. EXACT of it continues the listing. */
  readonly revision: number;
  /** In key order. */
  readonly items: readonly StoredObject[];
  /** The same items in parts that answers share, so that whoever encodes these can do it once. */
  readonly chunks?: readonly (readonly StoredObject[])[] | undefined;
  /**
   * Where to start the next page after; undefined when this was the last. A page may be short or
   * empty and yet be followed by another.
   */
  readonly next: string | undefined;
  /** How many objects follow this page, where that is known. */
  readonly remaining: number | undefined;
}

export interface WrittenAfterRequest {
  readonly scope: Scope;
  /** The state at this revision is asked about. */
  readonly revision: number;
  /** Only objects that were written after this one are told. */
  readonly after: number;
  /** How many of these are told at the most; at least 1. */
  readonly limit: number;
  readonly signal?: AbortSignal | undefined;
}

/** Of the state at one revision, what was written last, and how much there is in all. */
export interface WrittenObjects {
  /** In key order, and without their values. */
  readonly written: readonly StoredObject[];
  /** How many objects there are in the scope, whenever they were written. */
  readonly total: number;
}

/** The keys that a watch follows. An empty prefix is all of them. */
export type Scope = { readonly key: string } | { readonly prefix: string };

export interface WatchRequest {
  readonly scope: Scope;
  /** Delivers what came after this revision; undefined: after the current one. */
  readonly afterRevision: number | undefined;
  /**
   * The reader takes nothing after this revision, which is at or below the current one, and closes the stream
   * once it has come there. A storage that knows may send less; it need not.
   */
  readonly upTo?: number | undefined;
  /**
   * Whether the reader wants events whole: DELETED with the last content, and `previous`. Without it
   * (for readers that keep the state themselves) a DELETED event may have no more of the object than
   * its key and the revision that removed it, MODIFIED and ADDED tell only whether the key existed,
   * and `previous` is absent.
   */
  readonly withPrevious: boolean;
  /**
   * Only objects that satisfy this, before or after the change: ADDED is then entering the set and
   * DELETED leaving it. Needs `withPrevious`.
   */
  readonly predicate?: Predicate | undefined;
}

/**
 * A stream of batches that is read by pulling, so that reading nothing is what back-pressure is.
 *
 *     for (;;) {
 *       const batch = stream.read();
 *       if (batch === undefined) break;   // now `ended` tells whether more will come
 *     }
 */
export interface WatchStream {
  /** The next batch, or undefined when none waits now. */
  read(): WatchBatch | undefined;
  /**
   * Why the stream ended: undefined while it lives, and until all that came before the end has been
   * read. A stream that its reader closed has ended with no error: `null`.
   */
  readonly ended: Error | null | undefined;
  /**
   * Sets the one listener. It is called, never from within `read` or `onReadable` themselves, when
   * there is something new to read or the stream has ended since a `read` that returned undefined.
   */
  onReadable(listener: () => void): void;
  /**
   * The reader has passed on a part of what it took last. A stream that ends readers who take nothing is to
   * hear of this from one who takes long over a single batch.
   */
  accepted?(): void;
  /** No more is delivered and all that waits is dropped. Harmless when called twice. */
  close(): void;
}

export interface PutRequest {
  readonly key: string;
  readonly value: Uint8Array;
  /** undefined: write regardless; 0: must not exist; otherwise: must stand at this revision. */
  readonly expectedModRevision?: number | undefined;
  /** An existing lease; undefined or 0n: none. Not together with `ttlSeconds`. */
  readonly lease?: bigint | undefined;
  /**
   * Attaches the object to a new lease of this many whole seconds, at least 1. If the put fails the lease
   * is revoked.
   */
  readonly ttlSeconds?: number | undefined;
  /**
   * Nothing is written, and the call rejects with HISTORY_CHANGED, if the history is another or its id
   * can't be known. Undefined or empty: whatever the history is.
   */
  readonly historyId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface DeleteRequest {
  readonly key: string;
  /** undefined: delete regardless; otherwise (at least 1): must stand at this revision. */
  readonly expectedModRevision?: number | undefined;
  /** As of a put. */
  readonly historyId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface WriteResult {
  /** The revision of the write. */
  readonly revision: number;
  /** Put: the object as written. Delete: the object as it stood. */
  readonly object: StoredObject;
  /**
   * The id that the history had in the same moment, empty if it can't be known: if it is not the one expected, the
   * revision is of another history. Undefined where a storage does not say.
   */
  readonly historyId?: string | undefined;
}
