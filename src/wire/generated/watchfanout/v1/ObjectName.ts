// Original file: proto/watchfanout/v1/list_watch_service.proto


/**
 * Names an object.
 */
export interface ObjectName {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
}

/**
 * Names an object.
 */
export interface ObjectName__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
}
