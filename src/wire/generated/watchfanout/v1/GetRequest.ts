// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { RevisionMatch as _watchfanout_v1_RevisionMatch, RevisionMatch__Output as _watchfanout_v1_RevisionMatch__Output } from '../../watchfanout/v1/RevisionMatch.ts';
import type { FieldMask as _google_protobuf_FieldMask, FieldMask__Output as _google_protobuf_FieldMask__Output } from '../../google/protobuf/FieldMask.ts';
import type { View as _watchfanout_v1_View, View__Output as _watchfanout_v1_View__Output } from '../../watchfanout/v1/View.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests one object.
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
   * How recent the response has to be.
   */
  'revision_match'?: (_watchfanout_v1_RevisionMatch);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision'?: (number | string | Long);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * The parts of the value that the response has, as in a List.
   */
  'read_mask'?: (_google_protobuf_FieldMask | null);
  /**
   * What of the object the response has. Not VIEW_COUNT.
   */
  'view'?: (_watchfanout_v1_View);
}

/**
 * Requests one object.
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
   * How recent the response has to be.
   */
  'revision_match': (_watchfanout_v1_RevisionMatch__Output);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * The parts of the value that the response has, as in a List.
   */
  'read_mask': (_google_protobuf_FieldMask__Output | null);
  /**
   * What of the object the response has. Not VIEW_COUNT.
   */
  'view': (_watchfanout_v1_View__Output);
}
