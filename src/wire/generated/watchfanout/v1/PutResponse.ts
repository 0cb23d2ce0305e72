// Original file: proto/watchfanout/v1/write_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The written object.
 */
export interface PutResponse {
  /**
   * The revision of the write. With validate_only or a conflict: a revision at which the object was as the response says.
   */
  'revision'?: (number | string | Long);
  /**
   * The object as it was written. After a conflict: the current one; absent: it does not exist. With validate_only and no
   * conflict: absent.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * The history that the revision belongs to. Empty: unknown, as when etcd has just been restored
   * and this replica does not know yet whether the write came before or after that.
   */
  'history_id'?: (string);
  /**
   * With return_current: the object was not as expected, and nothing was written.
   */
  'conflict'?: (boolean);
}

/**
 * The written object.
 */
export interface PutResponse__Output {
  /**
   * The revision of the write. With validate_only or a conflict: a revision at which the object was as the response says.
   */
  'revision': (string);
  /**
   * The object as it was written. After a conflict: the current one; absent: it does not exist. With validate_only and no
   * conflict: absent.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * The history that the revision belongs to. Empty: unknown, as when etcd has just been restored
   * and this replica does not know yet whether the write came before or after that.
   */
  'history_id': (string);
  /**
   * With return_current: the object was not as expected, and nothing was written.
   */
  'conflict': (boolean);
}
