// Original file: proto/watchfanout/v1/list_watch_service.proto


/**
 * The keys of a resource in etcd.
 */
export interface EtcdKeys {
  /**
   * What all of them begin with. Empty: it has every key.
   */
  'prefix'?: (string);
  /**
   * The key of the history's id, which no resource has.
   */
  'history_key'?: (string);
}

/**
 * The keys of a resource in etcd.
 */
export interface EtcdKeys__Output {
  /**
   * What all of them begin with. Empty: it has every key.
   */
  'prefix': (string);
  /**
   * The key of the history's id, which no resource has.
   */
  'history_key': (string);
}
