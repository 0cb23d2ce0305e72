// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * The order of a list. Objects with the same revision are in key order.
 */
export const Order = {
  /**
   * The same as ORDER_KEY_ASCENDING.
   */
  ORDER_UNSPECIFIED: 'ORDER_UNSPECIFIED',
  /**
   * By the UTF-8 bytes of the keys.
   */
  ORDER_KEY_ASCENDING: 'ORDER_KEY_ASCENDING',
  /**
   * The last key first.
   */
  ORDER_KEY_DESCENDING: 'ORDER_KEY_DESCENDING',
  /**
   * The object that was not changed for longest first.
   */
  ORDER_MOD_REVISION_ASCENDING: 'ORDER_MOD_REVISION_ASCENDING',
  /**
   * The object that was changed last first.
   */
  ORDER_MOD_REVISION_DESCENDING: 'ORDER_MOD_REVISION_DESCENDING',
  /**
   * The object that was created first first.
   */
  ORDER_CREATE_REVISION_ASCENDING: 'ORDER_CREATE_REVISION_ASCENDING',
  /**
   * The object that was created last first.
   */
  ORDER_CREATE_REVISION_DESCENDING: 'ORDER_CREATE_REVISION_DESCENDING',
} as const;

/**
 * The order of a list. Objects with the same revision are in key order.
 */
export type Order =
  /**
   * The same as ORDER_KEY_ASCENDING.
   */
  | 'ORDER_UNSPECIFIED'
  | 0
  /**
   * By the UTF-8 bytes of the keys.
   */
  | 'ORDER_KEY_ASCENDING'
  | 1
  /**
   * The last key first.
   */
  | 'ORDER_KEY_DESCENDING'
  | 2
  /**
   * The object that was not changed for longest first.
   */
  | 'ORDER_MOD_REVISION_ASCENDING'
  | 3
  /**
   * The object that was changed last first.
   */
  | 'ORDER_MOD_REVISION_DESCENDING'
  | 4
  /**
   * The object that was created first first.
   */
  | 'ORDER_CREATE_REVISION_ASCENDING'
  | 5
  /**
   * The object that was created last first.
   */
  | 'ORDER_CREATE_REVISION_DESCENDING'
  | 6

/**
 * The order of a list. Objects with the same revision are in key order.
 */
export type Order__Output = typeof Order[keyof typeof Order]
