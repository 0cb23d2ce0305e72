// Original file: proto/watchfanout/v1/list_watch_service.proto

/**
 * How recent the response to a read has to be.
 */
export const RevisionMatch = {
  /**
   * The same as REVISION_MATCH_LINEARIZABLE.
   */
  REVISION_MATCH_UNSPECIFIED: 'REVISION_MATCH_UNSPECIFIED',
  /**
   * At least as new as every write that completed before the call began. The revision must be 0.
   */
  REVISION_MATCH_LINEARIZABLE: 'REVISION_MATCH_LINEARIZABLE',
  /**
   * Any revision that the cache has. The revision must be 0.
   */
  REVISION_MATCH_ANY: 'REVISION_MATCH_ANY',
  /**
   * At least as new as the given revision; waits until the cache has it.
   */
  REVISION_MATCH_NOT_OLDER_THAN: 'REVISION_MATCH_NOT_OLDER_THAN',
  /**
   * The state at exactly the given revision.
   */
  REVISION_MATCH_EXACT: 'REVISION_MATCH_EXACT',
} as const;

/**
 * How recent the response to a read has to be.
 */
export type RevisionMatch =
  /**
   * The same as REVISION_MATCH_LINEARIZABLE.
   */
  | 'REVISION_MATCH_UNSPECIFIED'
  | 0
  /**
   * At least as new as every write that completed before the call began. The revision must be 0.
   */
  | 'REVISION_MATCH_LINEARIZABLE'
  | 1
  /**
   * Any revision that the cache has. The revision must be 0.
   */
  | 'REVISION_MATCH_ANY'
  | 2
  /**
   * At least as new as the given revision; waits until the cache has it.
   */
  | 'REVISION_MATCH_NOT_OLDER_THAN'
  | 3
  /**
   * The state at exactly the given revision.
   */
  | 'REVISION_MATCH_EXACT'
  | 4

/**
 * How recent the response to a read has to be.
 */
export type RevisionMatch__Output = typeof RevisionMatch[keyof typeof RevisionMatch]
