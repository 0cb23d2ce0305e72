// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The requested object. An absent object is the error OBJECT_NOT_FOUND.
 */
export interface GetResponse {
  /**
   * The revision of the store that the response reflects.
   */
  'revision'?: (number | string | Long);
  /**
   * The object.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * The history that the revision belongs to.
   */
  'history_id'?: (string);
}

/**
 * The requested object. An absent object is the error OBJECT_NOT_FOUND.
 */
export interface GetResponse__Output {
  /**
   * The revision of the store that the response reflects.
   */
  'revision': (string);
  /**
   * The object.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * The history that the revision belongs to.
   */
  'history_id': (string);
}
