// Original file: proto/watchfanout/v1/error_reason.proto

/**
 * Why a call or a stream failed: the `reason` of the google.rpc.ErrorInfo of every error, whose domain is "watchfanout".
 * docs/semantics.md has the code and the metadata of each. Values can be added: treat an unknown one by its gRPC code.
 * 
 * The names have no prefix, so that they are the texts of `reason`.
 */
export const ErrorReason = {
  /**
   * Not sent.
   */
  ERROR_REASON_UNSPECIFIED: 'ERROR_REASON_UNSPECIFIED',
  /**
   * A field is wrong, which google.rpc.BadRequest names, or the bytes are no request. Correct it.
   */
  INVALID_REQUEST: 'INVALID_REQUEST',
  /**
   * The service has no such resource, or the caller may not know of it.
   */
  UNKNOWN_RESOURCE: 'UNKNOWN_RESOURCE',
  /**
   * Get: there is no object of that key.
   */
  OBJECT_NOT_FOUND: 'OBJECT_NOT_FOUND',
  /**
   * A Subscribe stream has no watch of that id: it was not added, or has ended.
   */
  UNKNOWN_WATCH: 'UNKNOWN_WATCH',
  /**
   * A Subscribe stream has a watch of that id already.
   */
  WATCH_ID_TAKEN: 'WATCH_ID_TAKEN',
  /**
   * The revision is older than the events that are kept. List again.
   */
  REVISION_TOO_OLD: 'REVISION_TOO_OLD',
  /**
   * The replica has not seen the revision. Retry soon.
   */
  REVISION_TOO_NEW: 'REVISION_TOO_NEW',
  /**
   * The store was restored: revisions of before mean nothing now. List again.
   */
  HISTORY_CHANGED: 'HISTORY_CHANGED',
  /**
   * Events may be missing. List again.
   */
  HISTORY_LOST: 'HISTORY_LOST',
  /**
   * The client accepted too little for too long. Resume, and read faster.
   */
  SLOW_CONSUMER: 'SLOW_CONSUMER',
  /**
   * The object is not as the write expected. Read, decide again, write again.
   */
  REVISION_CONFLICT: 'REVISION_CONFLICT',
  /**
   * Whether the write was applied is not known. Read before it is repeated.
   */
  OUTCOME_UNKNOWN: 'OUTCOME_UNKNOWN',
  /**
   * There is no such lease.
   */
  LEASE_NOT_FOUND: 'LEASE_NOT_FOUND',
  /**
   * The value or the request is too large.
   */
  VALUE_TOO_LARGE: 'VALUE_TOO_LARGE',
  /**
   * The store's quota is reached. Reads and watches continue.
   */
  STORAGE_FULL: 'STORAGE_FULL',
  /**
   * The store refuses the service itself.
   */
  UPSTREAM_DENIED: 'UPSTREAM_DENIED',
  /**
   * The store does not answer. Retry soon.
   */
  UPSTREAM_UNAVAILABLE: 'UPSTREAM_UNAVAILABLE',
  /**
   * A bug. The service's log has it under the id that is in the metadata.
   */
  INTERNAL: 'INTERNAL',
  /**
   * The replica has not listed the resource yet. Retry soon.
   */
  NOT_READY: 'NOT_READY',
  /**
   * The replica shuts down. Resume at another.
   */
  DRAINING: 'DRAINING',
  /**
   * A limit of the replica or of the caller is reached.
   */
  TOO_MANY_STREAMS: 'TOO_MANY_STREAMS',
  /**
   * The replica has no room. Use another, or retry as google.rpc.RetryInfo says.
   */
  OVERLOADED: 'OVERLOADED',
  /**
   * The credential is missing, refused or expired.
   */
  UNAUTHENTICATED: 'UNAUTHENTICATED',
  /**
   * The policy does not allow it.
   */
  PERMISSION_DENIED: 'PERMISSION_DENIED',
  /**
   * The server has no such method, or does not know the compression of the request.
   */
  UNIMPLEMENTED: 'UNIMPLEMENTED',
  /**
   * The call's own deadline passed, or its request did not arrive in time. A write may have been applied.
   */
  DEADLINE_EXCEEDED: 'DEADLINE_EXCEEDED',
  /**
   * A list in another order than that of keys, which only the store can answer, has too many objects. List less.
   */
  LIST_TOO_LARGE: 'LIST_TOO_LARGE',
  /**
   * A watch from before the events that the replica keeps can't be read from the store now. Retry later, or list again.
   */
  RESUME_LIMITED: 'RESUME_LIMITED',
  /**
   * The id of the request was used for another request. Use a new id for each.
   */
  REQUEST_ID_REUSED: 'REQUEST_ID_REUSED',
  /**
   * A transaction has too many compares or operations, or would delete too many objects. Divide it.
   */
  TRANSACTION_TOO_LARGE: 'TRANSACTION_TOO_LARGE',
  /**
   * A limit of the caller's leases is reached. Revoke one, or attach several objects to one lease.
   */
  TOO_MANY_LEASES: 'TOO_MANY_LEASES',
} as const;

/**
 * Why a call or a stream failed: the `reason` of the google.rpc.ErrorInfo of every error, whose domain is "watchfanout".
 * docs/semantics.md has the code and the metadata of each. Values can be added: treat an unknown one by its gRPC code.
 * 
 * The names have no prefix, so that they are the texts of `reason`.
 */
export type ErrorReason =
  /**
   * Not sent.
   */
  | 'ERROR_REASON_UNSPECIFIED'
  | 0
  /**
   * A field is wrong, which google.rpc.BadRequest names, or the bytes are no request. Correct it.
   */
  | 'INVALID_REQUEST'
  | 1
  /**
   * The service has no such resource, or the caller may not know of it.
   */
  | 'UNKNOWN_RESOURCE'
  | 2
  /**
   * Get: there is no object of that key.
   */
  | 'OBJECT_NOT_FOUND'
  | 3
  /**
   * A Subscribe stream has no watch of that id: it was not added, or has ended.
   */
  | 'UNKNOWN_WATCH'
  | 4
  /**
   * A Subscribe stream has a watch of that id already.
   */
  | 'WATCH_ID_TAKEN'
  | 5
  /**
   * The revision is older than the events that are kept. List again.
   */
  | 'REVISION_TOO_OLD'
  | 6
  /**
   * The replica has not seen the revision. Retry soon.
   */
  | 'REVISION_TOO_NEW'
  | 7
  /**
   * The store was restored: revisions of before mean nothing now. List again.
   */
  | 'HISTORY_CHANGED'
  | 8
  /**
   * Events may be missing. List again.
   */
  | 'HISTORY_LOST'
  | 9
  /**
   * The client accepted too little for too long. Resume, and read faster.
   */
  | 'SLOW_CONSUMER'
  | 10
  /**
   * The object is not as the write expected. Read, decide again, write again.
   */
  | 'REVISION_CONFLICT'
  | 11
  /**
   * Whether the write was applied is not known. Read before it is repeated.
   */
  | 'OUTCOME_UNKNOWN'
  | 12
  /**
   * There is no such lease.
   */
  | 'LEASE_NOT_FOUND'
  | 13
  /**
   * The value or the request is too large.
   */
  | 'VALUE_TOO_LARGE'
  | 14
  /**
   * The store's quota is reached. Reads and watches continue.
   */
  | 'STORAGE_FULL'
  | 15
  /**
   * The store refuses the service itself.
   */
  | 'UPSTREAM_DENIED'
  | 16
  /**
   * The store does not answer. Retry soon.
   */
  | 'UPSTREAM_UNAVAILABLE'
  | 17
  /**
   * A bug. The service's log has it under the id that is in the metadata.
   */
  | 'INTERNAL'
  | 18
  /**
   * The replica has not listed the resource yet. Retry soon.
   */
  | 'NOT_READY'
  | 19
  /**
   * The replica shuts down. Resume at another.
   */
  | 'DRAINING'
  | 20
  /**
   * A limit of the replica or of the caller is reached.
   */
  | 'TOO_MANY_STREAMS'
  | 21
  /**
   * The replica has no room. Use another, or retry as google.rpc.RetryInfo says.
   */
  | 'OVERLOADED'
  | 22
  /**
   * The credential is missing, refused or expired.
   */
  | 'UNAUTHENTICATED'
  | 23
  /**
   * The policy does not allow it.
   */
  | 'PERMISSION_DENIED'
  | 24
  /**
   * The server has no such method, or does not know the compression of the request.
   */
  | 'UNIMPLEMENTED'
  | 25
  /**
   * The call's own deadline passed, or its request did not arrive in time. A write may have been applied.
   */
  | 'DEADLINE_EXCEEDED'
  | 26
  /**
   * A list in another order than that of keys, which only the store can answer, has too many objects. List less.
   */
  | 'LIST_TOO_LARGE'
  | 27
  /**
   * A watch from before the events that the replica keeps can't be read from the store now. Retry later, or list again.
   */
  | 'RESUME_LIMITED'
  | 28
  /**
   * The id of the request was used for another request. Use a new id for each.
   */
  | 'REQUEST_ID_REUSED'
  | 29
  /**
   * A transaction has too many compares or operations, or would delete too many objects. Divide it.
   */
  | 'TRANSACTION_TOO_LARGE'
  | 30
  /**
   * A limit of the caller's leases is reached. Revoke one, or attach several objects to one lease.
   */
  | 'TOO_MANY_LEASES'
  | 31

/**
 * Why a call or a stream failed: the `reason` of the google.rpc.ErrorInfo of every error, whose domain is "watchfanout".
 * docs/semantics.md has the code and the metadata of each. Values can be added: treat an unknown one by its gRPC code.
 * 
 * The names have no prefix, so that they are the texts of `reason`.
 */
export type ErrorReason__Output = typeof ErrorReason[keyof typeof ErrorReason]
