import type { ChangesRequest, JournalEntry, KeptLease, KeptRequest } from "./journal.ts";

/*
 * What SqliteJournal and its thread send each other. Records (record.ts) are sent as whole buffers, which are moved: a view
 * would be copied with all of its slab.
 */

/** How a commit is kept: `full` survives a loss of power; `off` survives the end of the process. */
export type DataSync = "full" | "off";

export interface ThreadOptions {
  readonly file: string;
  readonly sync: DataSync;
  /** Of a new file. */
  readonly historyId: string;
  readonly maxHistoryMs: number;
  readonly maxHistoryBytes: number;
  readonly maxBytes: number;
}

/** What the thread is started for. */
export type ThreadTask =
  | { readonly type: "journal"; readonly options: ThreadOptions }
  | {
      readonly type: "restore";
      readonly from: string;
      readonly to: string;
      readonly historyId: string;
    };

/** A JournalEntry, without the records of its changes: these are in the buffer of the commit, in the same order. */
export type SentEntry =
  | {
      readonly type: "changes";
      readonly revision: number;
      readonly count: number;
      readonly request: KeptRequest | undefined;
    }
  | Exclude<JournalEntry, { readonly type: "changes" }>;

/** `elapsedMs`: since the journal was opened, by its clock. */
export interface CommitCall {
  readonly type: "commit";
  readonly entries: readonly SentEntry[];
  readonly records: Uint8Array<ArrayBuffer>;
  /** `recordCost` of what each change replaces; 0: nothing. */
  readonly replaced: Float64Array<ArrayBuffer>;
  readonly elapsedMs: number;
}

export type ReadCall =
  /** The newest records, in key order, of the keys after this one; undefined: from the first one. */
  | { readonly type: "objects"; readonly after: Uint8Array | undefined }
  | { readonly type: "leases" }
  | { readonly type: "requests" }
  | ({ readonly type: "changes" } & Omit<ChangesRequest, "signal">)
  | {
      readonly type: "page";
      readonly revision: number;
      readonly from: Uint8Array;
      readonly to: Uint8Array | undefined;
      readonly limit: number;
      readonly maxBytes: number;
    }
  | {
      readonly type: "history";
      readonly key: Uint8Array;
      readonly upTo: number;
      readonly limit: number;
      readonly maxBytes: number;
    };

export type ThreadCall =
  | CommitCall
  | ReadCall
  | { readonly type: "backup"; readonly path: string }
  /** Time has passed. */
  | { readonly type: "tick"; readonly elapsedMs: number }
  | { readonly type: "close" };

/** A call with its number. */
export interface Sent {
  readonly id: number;
  readonly call: ThreadCall | { readonly type: "cancel" };
}

/** What the journal is after a call. */
export interface JournalFacts {
  readonly historyId: string;
  readonly revision: number;
  readonly oldest: number;
  readonly bytes: number;
  /** Why no commit is kept now: the file is not the one at its path any more. Undefined: it is. */
  readonly detached?: string | undefined;
}

/** The records that a read returns. */
export interface FoundRecords {
  readonly records: Uint8Array<ArrayBuffer>;
  /** Of `objects`: the key to continue after; undefined: that was all. */
  readonly nextKey?: Uint8Array | undefined;
  readonly hasMore?: boolean;
  readonly next?: number | undefined;
}

/** Why a call failed. */
export interface ThreadFailure {
  /**
   * `full`: STORAGE_FULL; `detached`: UPSTREAM_UNAVAILABLE, as nothing may be written to this file; `fault`: it is not known what is kept; `damaged`: what was asked for can't be read; `too old`:
   * REVISION_TOO_OLD; `refused`: nothing was done.
   */
  readonly kind: "full" | "detached" | "fault" | "damaged" | "too old" | "refused";
  /** A sentence. */
  readonly message: string;
  /** Of `too old`. */
  readonly requested?: number | undefined;
  readonly oldest?: number | undefined;
}

export interface Reply {
  /** Number of the call; 0: the start of the thread. */
  readonly id: number;
  readonly failure?: ThreadFailure;
  readonly facts?: JournalFacts;
  readonly found?: FoundRecords;
  readonly leases?: readonly KeptLease[];
  readonly requests?: readonly KeptRequest[];
}
