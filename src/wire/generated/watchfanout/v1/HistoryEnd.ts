// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * Why the history of an object has no older changes.
 */
export const HistoryEnd = {
  /**
   * Older changes follow on the next page.
   */
  HISTORY_END_UNSPECIFIED: 'HISTORY_END_UNSPECIFIED',
  /**
   * The oldest change is the creation of the object, or there is no change. Before it the object did not exist, at
   * least from oldest_revision on.
   */
  HISTORY_END_CREATION: 'HISTORY_END_CREATION',
  /**
   * The store no longer has the changes before the oldest one.
   */
  HISTORY_END_COMPACTION: 'HISTORY_END_COMPACTION',
  /**
   * To find an earlier object with this key, the store would have to read more than 500,000 revisions.
   */
  HISTORY_END_LIMIT: 'HISTORY_END_LIMIT',
} as const;

/**
 * Why the history of an object has no older changes.
 */
export type HistoryEnd =
  /**
   * Older changes follow on the next page.
   */
  | 'HISTORY_END_UNSPECIFIED'
  | 0
  /**
   * The oldest change is the creation of the object, or there is no change. Before it the object did not exist, at
   * least from oldest_revision on.
   */
  | 'HISTORY_END_CREATION'
  | 1
  /**
   * The store no longer has the changes before the oldest one.
   */
  | 'HISTORY_END_COMPACTION'
  | 2
  /**
   * To find an earlier object with this key, the store would have to read more than 500,000 revisions.
   */
  | 'HISTORY_END_LIMIT'
  | 3

/**
 * Why the history of an object has no older changes.
 */
export type HistoryEnd__Output = typeof HistoryEnd[keyof typeof HistoryEnd]
