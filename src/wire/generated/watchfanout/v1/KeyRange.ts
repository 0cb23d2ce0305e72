// Original file: proto/watchfanout/v1/list_watch_service.proto


/**
 * The keys from one key up to another, by their UTF-8 bytes. Neither need be the key of an object.
 */
export interface KeyRange {
  /**
   * The first key. Empty: from the first one of the resource on.
   */
  'start_key'?: (string);
  /**
   * The key behind the last one, which is above start_key. Empty: up to the last one of the resource.
   */
  'end_key'?: (string);
}

/**
 * The keys from one key up to another, by their UTF-8 bytes. Neither need be the key of an object.
 */
export interface KeyRange__Output {
  /**
   * The first key. Empty: from the first one of the resource on.
   */
  'start_key': (string);
  /**
   * The key behind the last one, which is above start_key. Empty: up to the last one of the resource.
   */
  'end_key': (string);
}
