// Original file: proto/watchfanout/v1/write_service.proto


/**
 * Requests to delete all objects whose keys begin with a prefix. The caller needs the right to delete all of them.
 */
export interface DeletePrefixRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The prefix, relative to the resource's. Empty is invalid without every_key.
   */
  'prefix'?: (string);
  /**
   * Deletes the whole resource. The prefix must be empty.
   */
  'every_key'?: (boolean);
  /**
   * As in PutRequest.
   */
  'history_id'?: (string);
  /**
   * Checks everything, counts, and deletes nothing.
   */
  'validate_only'?: (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id'?: (string);
}

/**
 * Requests to delete all objects whose keys begin with a prefix. The caller needs the right to delete all of them.
 */
export interface DeletePrefixRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The prefix, relative to the resource's. Empty is invalid without every_key.
   */
  'prefix': (string);
  /**
   * Deletes the whole resource. The prefix must be empty.
   */
  'every_key': (boolean);
  /**
   * As in PutRequest.
   */
  'history_id': (string);
  /**
   * Checks everything, counts, and deletes nothing.
   */
  'validate_only': (boolean);
  /**
   * Identifies the request: see TransactRequest.
   */
  'request_id': (string);
}
