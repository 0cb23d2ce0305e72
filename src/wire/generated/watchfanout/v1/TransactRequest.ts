// Original file: proto/watchfanout/v1/write_service.proto

import type { Compare as _watchfanout_v1_Compare, Compare__Output as _watchfanout_v1_Compare__Output } from '../../watchfanout/v1/Compare.ts';
import type { Operation as _watchfanout_v1_Operation, Operation__Output as _watchfanout_v1_Operation__Output } from '../../watchfanout/v1/Operation.ts';

/**
 * Requests a transaction.
 */
export interface TransactRequest {
  /**
   * All have to hold, or nothing is written; at most 120. The caller needs the right to get each key. Empty: no condition.
   */
  'compares'?: (_watchfanout_v1_Compare)[];
  /**
   * What is written if all compares hold, each key at most once; at most 60. Rights are needed for each as for a Put or
   * Delete.
   * Empty: the compares are checked, at one revision.
   */
  'operations'?: (_watchfanout_v1_Operation)[];
  /**
   * If a compare does not hold, the response has the current object of each compare. Above 2.25 MiB of them the call fails
   * with LIST_TOO_LARGE.
   */
  'return_current'?: (boolean);
  /**
   * The response has what each operation replaced or deleted. Needs the right to get those objects.
   */
  'return_previous'?: (boolean);
  /**
   * Checks everything, also the compares, except sizes and whether leases exist, and writes nothing. The request_id is
   * ignored.
   */
  'validate_only'?: (boolean);
  /**
   * Identifies the request, among all of the caller's; at most 128 bytes, best a random UUID. The store keeps it for some
   * minutes with the revision of the write, so that a request with the same id is not applied twice: it is answered as the
   * first one was, also by another replica. The same id with another request is the error REQUEST_ID_REUSED. A request that
   * was refused, or whose compares did not hold, leaves no trace. Empty: the request is not remembered, which costs less.
   * What the answer has of objects is read again; once that is compacted, the call fails with REVISION_TOO_OLD, whose
   * requested_revision is that of the write.
   */
  'request_id'?: (string);
  /**
   * The history that the revisions of the compares come from. If that is no longer the store's, nothing is written and the
   * call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
}

/**
 * Requests a transaction.
 */
export interface TransactRequest__Output {
  /**
   * All have to hold, or nothing is written; at most 120. The caller needs the right to get each key. Empty: no condition.
   */
  'compares': (_watchfanout_v1_Compare__Output)[];
  /**
   * What is written if all compares hold, each key at most once; at most 60. Rights are needed for each as for a Put or
   * Delete.
   * Empty: the compares are checked, at one revision.
   */
  'operations': (_watchfanout_v1_Operation__Output)[];
  /**
   * If a compare does not hold, the response has the current object of each compare. Above 2.25 MiB of them the call fails
   * with LIST_TOO_LARGE.
   */
  'return_current': (boolean);
  /**
   * The response has what each operation replaced or deleted. Needs the right to get those objects.
   */
  'return_previous': (boolean);
  /**
   * Checks everything, also the compares, except sizes and whether leases exist, and writes nothing. The request_id is
   * ignored.
   */
  'validate_only': (boolean);
  /**
   * Identifies the request, among all of the caller's; at most 128 bytes, best a random UUID. The store keeps it for some
   * minutes with the revision of the write, so that a request with the same id is not applied twice: it is answered as the
   * first one was, also by another replica. The same id with another request is the error REQUEST_ID_REUSED. A request that
   * was refused, or whose compares did not hold, leaves no trace. Empty: the request is not remembered, which costs less.
   * What the answer has of objects is read again; once that is compacted, the call fails with REVISION_TOO_OLD, whose
   * requested_revision is that of the write.
   */
  'request_id': (string);
  /**
   * The history that the revisions of the compares come from. If that is no longer the store's, nothing is written and the
   * call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
}
