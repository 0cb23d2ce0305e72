// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { RevisionMatch as _watchfanout_v1_RevisionMatch, RevisionMatch__Output as _watchfanout_v1_RevisionMatch__Output } from '../../watchfanout/v1/RevisionMatch.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Asks for one object.
 */
export interface GetRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * How new the answer has to be.
   */
  'revision_match'?: (_watchfanout_v1_RevisionMatch);
  /**
   * The revision that revision_match speaks of; 0 where it speaks of none.
   */
  'revision'?: (number | string | Long);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
}

/**
 * Asks for one object.
 */
export interface GetRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * How new the answer has to be.
   */
  'revision_match': (_watchfanout_v1_RevisionMatch__Output);
  /**
   * The revision that revision_match speaks of; 0 where it speaks of none.
   */
  'revision': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
}
