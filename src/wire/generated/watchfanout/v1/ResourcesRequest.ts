// Original file: proto/watchfanout/v1/list_watch_service.proto


/**
 * Requests the resources of the server.
 */
export interface ResourcesRequest {
  /**
   * Only resources whose name sorts after this one: the last name of the response before. Empty: all.
   */
  'after_name'?: (string);
  /**
   * Of a relay: whether the server that it follows is asked as well if the relays that the request has passed
   * may follow it, which it refuses if they form a loop or are too many.
   */
  'check_path'?: (boolean);
}

/**
 * Requests the resources of the server.
 */
export interface ResourcesRequest__Output {
  /**
   * Only resources whose name sorts after this one: the last name of the response before. Empty: all.
   */
  'after_name': (string);
  /**
   * Of a relay: whether the server that it follows is asked as well if the relays that the request has passed
   * may follow it, which it refuses if they form a loop or are too many.
   */
  'check_path': (boolean);
}
