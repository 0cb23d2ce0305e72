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
  /**
   * Maximum number of resources of a page, at most 1,000. 0: 1,000.
   */
  'page_size'?: (number);
  /**
   * next_page_token of the page before. Empty: the first page. Not together with after_name.
   */
  'page_token'?: (string);
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
  /**
   * Maximum number of resources of a page, at most 1,000. 0: 1,000.
   */
  'page_size': (number);
  /**
   * next_page_token of the page before. Empty: the first page. Not together with after_name.
   */
  'page_token': (string);
}
