// Original file: proto/watchfanout/v1/list_watch_service.proto


/**
 * Requests the resources of the server.
 */
export interface ResourcesRequest {
  /**
   * Only resources whose name sorts after this one: the last name of the response before. Empty: all.
   */
  'after_name'?: (string);
}

/**
 * Requests the resources of the server.
 */
export interface ResourcesRequest__Output {
  /**
   * Only resources whose name sorts after this one: the last name of the response before. Empty: all.
   */
  'after_name': (string);
}
