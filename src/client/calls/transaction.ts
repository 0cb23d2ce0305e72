import type { StoredObject } from "../../model/object.ts";
import type { Compare, ObjectName, TransactResult } from "../../storage/store.ts";

export type { CompareResult, OperationResult } from "../../storage/store.ts";
export type { Compare, ObjectName };

/** A change of one object in a transaction. A deletion of an object that does not exist has no effect. */
export type Operation = ObjectName &
  (
    | {
        readonly type: "put";
        readonly value: Uint8Array;
        /** An existing lease to attach the object to. Default: no lease. */
        readonly lease?: bigint | undefined;
        /**
         * Lifetime of the object unless it is put again, in milliseconds, rounded up to whole seconds. The operations of a
         * transaction with the same one share a lease. Not together with `lease`. Default: unlimited.
         */
        readonly ttlMs?: number | undefined;
      }
    | { readonly type: "delete" }
  );

/** What a transaction requires and does. */
export interface TransactionRequest {
  /** All must hold, or nothing is written. Default: no condition. */
  readonly compares?: readonly Compare[] | undefined;
  /** Each key at most once. Default: the compares are checked, and nothing is written. */
  readonly operations?: readonly Operation[] | undefined;
}

/** The outcome of a transaction. */
export interface TransactionResult extends TransactResult {
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
}

/** Several objects at one revision. */
export interface BatchGetResult {
  /** The revision of all of them. */
  readonly revision: number;
  /** One for each name, in their order; undefined: there is no such object. */
  readonly objects: readonly (StoredObject | undefined)[];
  /** The history that the revisions belong to; empty if the server does not know it. */
  readonly historyId: string;
  /** How old the result may be, in milliseconds, as that of a get. */
  readonly staleForMs: number | undefined;
}

/** The outcome of the deletion of a prefix. */
export interface DeletePrefixResult {
  /** The revision of the deletion; if nothing was deleted, one at which there was no such object. */
  readonly revision: number;
  /** Number of objects that were deleted; with `validateOnly`: that would be. */
  readonly deleted: number;
  /** The history that the revision belongs to; empty if the server does not know it. */
  readonly historyId: string;
}
