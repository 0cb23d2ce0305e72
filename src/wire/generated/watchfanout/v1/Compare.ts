// Original file: proto/watchfanout/v1/write_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * A condition on one object.
 */
export interface Compare {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * Whether the object exists.
   */
  'exists'?: (boolean);
  /**
   * The object's mod_revision; 0: it does not exist.
   */
  'mod_revision'?: (number | string | Long);
  /**
   * The object's create_revision; 0: it does not exist.
   */
  'create_revision'?: (number | string | Long);
  /**
   * The object's value. It never holds for an object that does not exist.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * What has to hold. Required.
   */
  'condition'?: "exists"|"mod_revision"|"create_revision"|"value";
}

/**
 * A condition on one object.
 */
export interface Compare__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * Whether the object exists.
   */
  'exists'?: (boolean);
  /**
   * The object's mod_revision; 0: it does not exist.
   */
  'mod_revision'?: (string);
  /**
   * The object's create_revision; 0: it does not exist.
   */
  'create_revision'?: (string);
  /**
   * The object's value. It never holds for an object that does not exist.
   */
  'value'?: (Buffer);
  /**
   * What has to hold. Required.
   */
  'condition'?: "exists"|"mod_revision"|"create_revision"|"value";
}
