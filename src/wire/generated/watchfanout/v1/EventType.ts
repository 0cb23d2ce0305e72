// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * The type of a change, relative to the request's selectors.
 */
export const EventType = {
  /**
   * Never sent.
   */
  EVENT_TYPE_UNSPECIFIED: 'EVENT_TYPE_UNSPECIFIED',
  /**
   * The object was created, or began to match, or is part of the initial state.
   */
  EVENT_TYPE_ADDED: 'EVENT_TYPE_ADDED',
  /**
   * The object matched and still does.
   */
  EVENT_TYPE_MODIFIED: 'EVENT_TYPE_MODIFIED',
  /**
   * The object was deleted, or no longer matches.
   */
  EVENT_TYPE_DELETED: 'EVENT_TYPE_DELETED',
} as const;

/**
 * The type of a change, relative to the request's selectors.
 */
export type EventType =
  /**
   * Never sent.
   */
  | 'EVENT_TYPE_UNSPECIFIED'
  | 0
  /**
   * The object was created, or began to match, or is part of the initial state.
   */
  | 'EVENT_TYPE_ADDED'
  | 1
  /**
   * The object matched and still does.
   */
  | 'EVENT_TYPE_MODIFIED'
  | 2
  /**
   * The object was deleted, or no longer matches.
   */
  | 'EVENT_TYPE_DELETED'
  | 3

/**
 * The type of a change, relative to the request's selectors.
 */
export type EventType__Output = typeof EventType[keyof typeof EventType]
