// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * What happened to an object, as seen through the request.
 */
export const EventType = {
  /**
   * Never sent.
   */
  EVENT_TYPE_UNSPECIFIED: 'EVENT_TYPE_UNSPECIFIED',
  /**
   * The object came into view: created, or part of the initial state.
   */
  EVENT_TYPE_ADDED: 'EVENT_TYPE_ADDED',
  /**
   * The object was in view and still is.
   */
  EVENT_TYPE_MODIFIED: 'EVENT_TYPE_MODIFIED',
  /**
   * The object left the view: deleted.
   */
  EVENT_TYPE_DELETED: 'EVENT_TYPE_DELETED',
} as const;

/**
 * What happened to an object, as seen through the request.
 */
export type EventType =
  /**
   * Never sent.
   */
  | 'EVENT_TYPE_UNSPECIFIED'
  | 0
  /**
   * The object came into view: created, or part of the initial state.
   */
  | 'EVENT_TYPE_ADDED'
  | 1
  /**
   * The object was in view and still is.
   */
  | 'EVENT_TYPE_MODIFIED'
  | 2
  /**
   * The object left the view: deleted.
   */
  | 'EVENT_TYPE_DELETED'
  | 3

/**
 * What happened to an object, as seen through the request.
 */
export type EventType__Output = typeof EventType[keyof typeof EventType]
