// Original file: proto/watchfanout/v1/write_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';

/**
 * What an operation did.
 */
export interface OperationResult {
  /**
   * Put: the object as it was written. Absent after a deletion.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * With return_previous: the object before the transaction. Absent: it did not exist, or it is left out.
   */
  'previous'?: (_watchfanout_v1_StoredObject | null);
  /**
   * The object before the transaction is left out, since there are above 2.25 MiB of them. Read it at the revision before
   * that of the transaction.
   */
  'previous_left_out'?: (boolean);
}

/**
 * What an operation did.
 */
export interface OperationResult__Output {
  /**
   * Put: the object as it was written. Absent after a deletion.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * With return_previous: the object before the transaction. Absent: it did not exist, or it is left out.
   */
  'previous': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * The object before the transaction is left out, since there are above 2.25 MiB of them. Read it at the revision before
   * that of the transaction.
   */
  'previous_left_out': (boolean);
}
