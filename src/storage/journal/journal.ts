import type { WatchEvent } from "../../model/event.ts";
import type { StoredObject } from "../../model/object.ts";

/**
 * What the embedded store keeps on disk: every change, so that a state of before can be read and watched from, and what is
 * needed to continue after the process has ended. Keys are whole, not relative to a resource, in the form of
 * model/key-bytes.ts.
 *
 * The store reads its current state and its newest history in memory. It asks here for what is older.
 */
export interface Journal {
  /** Identifies the history. It survives restarts, and changes with a restore, or with `history`. */
  readonly historyId: string;
  /** The newest revision that is kept; 1 of an empty one. */
  readonly revision: number;
  /** The oldest revision that can still be read at, and watched from, at least 1. It increases by itself, as age and size demand. */
  readonly oldest: number;
  /** Size on disk in bytes. */
  readonly bytes: number;

  /** The current objects in key order, in parts. Called once, before the first `commit`. */
  objects(signal?: AbortSignal): AsyncIterable<readonly StoredObject[]>;
  /** What else has to be known at a start. */
  leases(): Promise<readonly KeptLease[]>;
  requests(): Promise<readonly KeptRequest[]>;

  /**
   * Keeps all entries, or none, and resolves when they would survive a loss of power. One call at a time.
   *
   * Rejects with STORAGE_FULL if there is no room, or UPSTREAM_UNAVAILABLE if a restart would not have what is written now:
   * none is kept, and later ones may be. Rejects with a JournalFault if it is not known what is kept: then the journal must
   * not be used any more, and the process ends.
   */
  commit(entries: readonly JournalEntry[]): Promise<void>;

  /** The changes after a revision, in order, whole revisions only, at least one if there is one, up to `upTo`. Rejects with REVISION_TOO_OLD. */
  changesAfter(request: ChangesRequest): Promise<readonly KeptChanges[]>;
  /** One page of the objects at a revision, in key order. Rejects with REVISION_TOO_OLD. */
  page(request: KeptPageRequest): Promise<KeptPage>;
  /**
   * The changes of one key, the newest first: those after `oldest`, and the one that wrote what the key has there. Rejects with
   * REVISION_TOO_OLD.
   */
  history(request: KeptHistoryRequest): Promise<KeptHistory>;

  /** Writes a copy to another file while the store is in use. Rejects with an Error with a sentence. */
  backup(path: string, signal?: AbortSignal): Promise<void>;
  /** Ends what it runs, after the last commit. Idempotent. */
  close(): Promise<void>;
}

/** It is not known what the journal has. `message` is a sentence. */
export class JournalFault extends Error {}

/** One thing that is kept. */
export type JournalEntry =
  /** All changes of one revision, which is the one after the last. Each event has `previous`, if there was an object. */
  | {
      readonly type: "changes";
      readonly revision: number;
      readonly events: readonly WatchEvent[];
      /** The request that made them, if it has an id. */
      readonly request?: KeptRequest | undefined;
    }
  /** A request with an id that changed nothing. */
  | { readonly type: "request"; readonly request: KeptRequest }
  | { readonly type: "lease"; readonly lease: KeptLease }
  | { readonly type: "lease ended"; readonly id: bigint }
  /** A caller has compacted the history: nothing below this revision is needed any more. */
  | { readonly type: "compacted"; readonly revision: number }
  | { readonly type: "history"; readonly historyId: string };

export interface KeptLease {
  readonly id: bigint;
  readonly ttlSeconds: number;
  /** Whether it lasts without keys. */
  readonly isGranted: boolean;
}

/** A request with an id that was executed. */
export interface KeptRequest {
  readonly id: string;
  readonly fingerprint: string;
  readonly revision: number;
  /** The revision before; the same one if it changed nothing. */
  readonly before: number;
}

export interface ChangesRequest {
  readonly after: number;
  readonly upTo: number;
  /** Bounds of the result, which ends after the revision that reaches one of them. */
  readonly maxEvents: number;
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

export interface KeptChanges {
  readonly revision: number;
  /** With `previous`, if that is not compacted. */
  readonly events: readonly WatchEvent[];
}

export interface KeptPageRequest {
  readonly revision: number;
  readonly from: string;
  /** Not included; undefined: up to the last key. */
  readonly to: string | undefined;
  /** Maximum number of objects, at least 1. */
  readonly limit: number;
  /** Maximum size of all objects in bytes (`estimatedBytes`), but always at least one object. */
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

export interface KeptPage {
  readonly objects: readonly StoredObject[];
  /** Whether there are objects after this page. */
  readonly hasMore: boolean;
}

export interface KeptHistoryRequest {
  readonly key: string;
  readonly upTo: number;
  readonly limit: number;
  readonly maxBytes: number;
  readonly signal?: AbortSignal | undefined;
}

export interface KeptHistory {
  /** The newest first. A DELETED event has the last content. */
  readonly events: readonly WatchEvent[];
  /** `upTo` of the next page; undefined: there are no older changes that are kept. */
  readonly next: number | undefined;
}
