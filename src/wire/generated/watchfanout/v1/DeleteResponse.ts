// Original file: proto/watchfanout/v1/write_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * What was removed.
 */
export interface DeleteResponse {
  /**
   * The revision of the removal.
   */
  'revision'?: (number | string | Long);
  /**
   * The object as it stood, unchanged.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * The history that the revision belongs to. Empty: unknown, as where etcd has just been restored
   * and this replica has yet to find out whether the write came before or after that.
   */
  'history_id'?: (string);
}

/**
 * What was removed.
 */
export interface DeleteResponse__Output {
  /**
   * The revision of the removal.
   */
  'revision': (string);
  /**
   * The object as it stood, unchanged.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * The history that the revision belongs to. Empty: unknown, as where etcd has just been restored
   * and this replica has yet to find out whether the write came before or after that.
   */
  'history_id': (string);
}
