// Original file: proto/watchfanout/v1/write_service.proto

import type { PutOperation as _watchfanout_v1_PutOperation, PutOperation__Output as _watchfanout_v1_PutOperation__Output } from '../../watchfanout/v1/PutOperation.ts';
import type { DeleteOperation as _watchfanout_v1_DeleteOperation, DeleteOperation__Output as _watchfanout_v1_DeleteOperation__Output } from '../../watchfanout/v1/DeleteOperation.ts';

/**
 * A change of one object.
 */
export interface Operation {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * Creates or replaces the object.
   */
  'put'?: (_watchfanout_v1_PutOperation | null);
  /**
   * Deletes the object, if it exists.
   */
  'delete'?: (_watchfanout_v1_DeleteOperation | null);
  /**
   * The change. Required.
   */
  'change'?: "put"|"delete";
}

/**
 * A change of one object.
 */
export interface Operation__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * Creates or replaces the object.
   */
  'put'?: (_watchfanout_v1_PutOperation__Output | null);
  /**
   * Deletes the object, if it exists.
   */
  'delete'?: (_watchfanout_v1_DeleteOperation__Output | null);
  /**
   * The change. Required.
   */
  'change'?: "put"|"delete";
}
