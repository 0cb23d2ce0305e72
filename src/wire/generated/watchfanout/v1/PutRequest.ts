// Original file: proto/watchfanout/v1/write_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests to create or replace an object.
 */
export interface PutRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * The new value.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * The condition of the write. Absent: no condition. 0: the object does not exist. Otherwise: this is
   * the object's mod_revision.
   */
  'expected_mod_revision'?: (number | string | Long);
  /**
   * An existing lease to attach the object to. 0: no lease. Not together with ttl.
   */
  'lease'?: (number | string | Long);
  /**
   * Attaches the object to a new lease of this length, rounded up to whole seconds.
   */
  'ttl'?: (_google_protobuf_Duration | null);
  /**
   * The history that expected_mod_revision comes from. If that is no longer the store's, nothing is
   * written and the call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * If the object is not as expected, the response has the current one, instead of the error REVISION_CONFLICT.
   * Needs the right to get the object as well.
   */
  'return_current'?: (boolean);
  /**
   * Checks everything, also the condition, and writes nothing.
   */
  'validate_only'?: (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id'?: (string);
  '_expected_mod_revision'?: "expected_mod_revision";
}

/**
 * Requests to create or replace an object.
 */
export interface PutRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * The new value.
   */
  'value': (Buffer);
  /**
   * The condition of the write. Absent: no condition. 0: the object does not exist. Otherwise: this is
   * the object's mod_revision.
   */
  'expected_mod_revision'?: (string);
  /**
   * An existing lease to attach the object to. 0: no lease. Not together with ttl.
   */
  'lease': (string);
  /**
   * Attaches the object to a new lease of this length, rounded up to whole seconds.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
  /**
   * The history that expected_mod_revision comes from. If that is no longer the store's, nothing is
   * written and the call fails with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * If the object is not as expected, the response has the current one, instead of the error REVISION_CONFLICT.
   * Needs the right to get the object as well.
   */
  'return_current': (boolean);
  /**
   * Checks everything, also the condition, and writes nothing.
   */
  'validate_only': (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id': (string);
  '_expected_mod_revision'?: "expected_mod_revision";
}
