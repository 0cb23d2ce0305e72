// Original file: proto/watchfanout/v1/write_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Requests to delete an object.
 */
export interface DeleteRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * The mod_revision that the object must have. Absent: any. 0 is invalid.
   */
  'expected_mod_revision'?: (number | string | Long);
  /**
   * The history that expected_mod_revision comes from. If that is no longer the store's, nothing is
   * deleted and the call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * As in PutRequest.
   */
  'return_current'?: (boolean);
  /**
   * Checks everything, also the condition, and deletes nothing.
   */
  'validate_only'?: (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id'?: (string);
  '_expected_mod_revision'?: "expected_mod_revision";
}

/**
 * Requests to delete an object.
 */
export interface DeleteRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * The mod_revision that the object must have. Absent: any. 0 is invalid.
   */
  'expected_mod_revision'?: (string);
  /**
   * The history that expected_mod_revision comes from. If that is no longer the store's, nothing is
   * deleted and the call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * As in PutRequest.
   */
  'return_current': (boolean);
  /**
   * Checks everything, also the condition, and deletes nothing.
   */
  'validate_only': (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id': (string);
  '_expected_mod_revision'?: "expected_mod_revision";
}
