import type { StoredObject } from "../model/object.ts";

/**
 * What the resources of one store share: transactions over their objects, and leases. etcd, the embedded store, and another
 * watch-fanout are each one. A service has at most one; its resources are named in it as in the service.
 *
 * Rejects with WatchFanoutErrors, as a Storage does.
 */
export interface Store {
  /** Whether a resource is of the store. */
  has(resource: string): boolean;
  /**
   * Applies the operations at one revision if all compares hold, otherwise nothing. Rejects with HISTORY_CHANGED,
   * LEASE_NOT_FOUND, VALUE_TOO_LARGE, TRANSACTION_TOO_LARGE, REQUEST_ID_REUSED, STORAGE_FULL, LIST_TOO_LARGE (what the compares
   * found, if that is asked for), or OUTCOME_UNKNOWN if the request was sent and no response came.
   */
  transact(request: TransactRequest): Promise<TransactResult>;
  /** Deletes what begins with a prefix, at one revision. Rejects as `transact` does. */
  deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult>;
  readonly leases: Leases;
  /** Ends its leases' streams, and frees all memory. Idempotent. */
  close(): Promise<void>;
}

/** A key of a resource. */
export interface ObjectName {
  readonly resource: string;
  readonly key: string;
}

/** A condition on one object. */
export type Compare = ObjectName &
  (
    | { readonly exists: boolean }
    /** 0: the object does not exist. */
    | { readonly modRevision: number }
    /** 0: the object does not exist. */
    | { readonly createRevision: number }
    | { readonly value: Uint8Array }
  );

/** A change of one object. */
export type Operation = PutOperation | DeleteOperation;

export interface PutOperation extends ObjectName {
  readonly type: "put";
  readonly value: Uint8Array;
  /** An existing lease; undefined or 0n: no lease. Not together with `ttlSeconds`. */
  readonly lease?: bigint | undefined;
  /** Attaches the object to a new lease, which the operations of the request with the same length share. */
  readonly ttlSeconds?: number | undefined;
}

/** Deletes the object, if it exists. */
export interface DeleteOperation extends ObjectName {
  readonly type: "delete";
}

/** What all writes have. */
interface WriteOptions {
  /** Checks everything, and writes nothing. */
  readonly validateOnly?: boolean | undefined;
  /**
   * Identifies the request, with its caller. The store keeps it with the write, so that a repetition is answered as the first
   * request was. Undefined or empty: it is not remembered.
   */
  readonly requestId?: string | undefined;
  /** The required history, as that of a PutRequest of a Storage. */
  readonly historyId?: string | undefined;
  /** The relays that the request has passed, for a store that passes it on to another server. */
  readonly via?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface TransactRequest extends WriteOptions {
  readonly compares: readonly Compare[];
  /** Each key at most once. */
  readonly operations: readonly Operation[];
  readonly returnCurrent?: boolean | undefined;
  readonly returnPrevious?: boolean | undefined;
}

/** What the results of all requests have. */
export interface StoreWrite {
  /** The revision of the write; if nothing was written, one at which the store was as the result says. */
  readonly revision: number;
  /** The store's revision before the call was at most this, in the same history. Undefined: that is not known. */
  readonly revisionBefore?: number | undefined;
  /** As that of a WriteResult. */
  readonly historyId?: string | undefined;
}

export interface TransactResult extends StoreWrite {
  /** Whether all compares held. */
  readonly succeeded: boolean;
  /** One for each operation, if they were applied; otherwise empty. */
  readonly results: readonly OperationResult[];
  /** One for each compare, if one did not hold and `returnCurrent` is set; otherwise empty. */
  readonly compares: readonly CompareResult[];
}

export interface OperationResult {
  /** Put: the object as it was written. */
  readonly object: StoredObject | undefined;
  /** With `returnPrevious`: the object before. */
  readonly previous: StoredObject | undefined;
  /** There was one, which is left out since the result would have more than 4 MiB of them. */
  readonly previousLeftOut?: boolean | undefined;
}

export interface CompareResult {
  readonly held: boolean;
  readonly object: StoredObject | undefined;
}

export interface DeletePrefixRequest extends WriteOptions {
  readonly resource: string;
  /** Empty: every object of the resource. */
  readonly prefix: string;
}

export interface DeletePrefixResult extends StoreWrite {
  /** Number of objects that were deleted; with `validateOnly`: that would be. */
  readonly deleted: number;
}

/** The leases of a store. */
export interface Leases {
  /** Grants a lease of at least this many whole seconds, with a random id. */
  grant(ttlSeconds: number, signal?: AbortSignal): Promise<GrantedLease>;
  /**
   * Renews leases, each once. Resolves to one outcome for each, in their order: the rest of its length in milliseconds, or why
   * it was not renewed. Callers that ask at the same time share what is sent.
   */
  keepAlive(leases: readonly bigint[], signal?: AbortSignal): Promise<readonly (number | Error)[]>;
  /** Ends a lease and deletes what is attached to it, at one revision. Rejects with LEASE_NOT_FOUND. */
  revoke(lease: bigint, signal?: AbortSignal): Promise<void>;
  /** Rejects with LEASE_NOT_FOUND. `objects`: whether to name what is attached. */
  timeToLive(lease: bigint, objects: boolean, signal?: AbortSignal): Promise<LeaseState>;
}

export interface GrantedLease {
  readonly lease: bigint;
  readonly ttlSeconds: number;
}

export interface LeaseState {
  /** The rest of its length, in milliseconds. */
  readonly ttlMs: number;
  /** The length that it was granted. */
  readonly grantedTtlSeconds: number;
  /** What is attached, of the resources of the service. Empty if it was not asked for. */
  readonly objects: readonly ObjectName[];
  /** Number of attached keys that are of no resource of the service. */
  readonly others: number;
}
