// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * What a slow stream receives.
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
   * The latest state of every object. Events of a stream that falls behind may be coalesced.
   */
  DELIVERY_LATEST_STATE: 'DELIVERY_LATEST_STATE',
} as const;

/**
 * What a slow stream receives.
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
   * The latest state of every object. Events of a stream that falls behind may be coalesced.
   */
  | 'DELIVERY_LATEST_STATE'
  | 2

/**
 * What a slow stream receives.
 */
export type Delivery__Output = typeof Delivery[keyof typeof Delivery]
