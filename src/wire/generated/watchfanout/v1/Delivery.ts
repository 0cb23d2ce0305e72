// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * What a slow stream is owed.
 */
export const Delivery = {
  /**
   * The same as DELIVERY_EVERY_EVENT.
   */
  DELIVERY_UNSPECIFIED: 'DELIVERY_UNSPECIFIED',
  /**
   * Every revision of every object, or an error.
   */
  DELIVERY_EVERY_EVENT: 'DELIVERY_EVERY_EVENT',
  /**
   * The newest state of every object. A stream that falls behind may skip states in between.
   */
  DELIVERY_LATEST_STATE: 'DELIVERY_LATEST_STATE',
} as const;

/**
 * What a slow stream is owed.
 */
export type Delivery =
  /**
   * The same as DELIVERY_EVERY_EVENT.
   */
  | 'DELIVERY_UNSPECIFIED'
  | 0
  /**
   * Every revision of every object, or an error.
   */
  | 'DELIVERY_EVERY_EVENT'
  | 1
  /**
   * The newest state of every object. A stream that falls behind may skip states in between.
   */
  | 'DELIVERY_LATEST_STATE'
  | 2

/**
 * What a slow stream is owed.
 */
export type Delivery__Output = typeof Delivery[keyof typeof Delivery]
