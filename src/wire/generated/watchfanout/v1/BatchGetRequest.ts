// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { ObjectName as _watchfanout_v1_ObjectName, ObjectName__Output as _watchfanout_v1_ObjectName__Output } from '../../watchfanout/v1/ObjectName.ts';
import type { RevisionMatch as _watchfanout_v1_RevisionMatch, RevisionMatch__Output as _watchfanout_v1_RevisionMatch__Output } from '../../watchfanout/v1/RevisionMatch.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests several objects at one revision.
 */
export interface BatchGetRequest {
  /**
   * The objects, each at most once, up to 1,000. The caller needs the right to get each.
   */
  'objects'?: (_watchfanout_v1_ObjectName)[];
  /**
   * How recent the response has to be.
   */
  'revision_match'?: (_watchfanout_v1_RevisionMatch);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision'?: (number | string | Long);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with HISTORY_CHANGED.
   * Empty: not checked.
   */
  'history_id'?: (string);
}

/**
 * Requests several objects at one revision.
 */
export interface BatchGetRequest__Output {
  /**
   * The objects, each at most once, up to 1,000. The caller needs the right to get each.
   */
  'objects': (_watchfanout_v1_ObjectName__Output)[];
  /**
   * How recent the response has to be.
   */
  'revision_match': (_watchfanout_v1_RevisionMatch__Output);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with HISTORY_CHANGED.
   * Empty: not checked.
   */
  'history_id': (string);
}
