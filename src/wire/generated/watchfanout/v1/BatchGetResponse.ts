// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { FoundObject as _watchfanout_v1_FoundObject, FoundObject__Output as _watchfanout_v1_FoundObject__Output } from '../../watchfanout/v1/FoundObject.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The objects at one revision.
 */
export interface BatchGetResponse {
  /**
   * The revision of all of them.
   */
  'revision'?: (number | string | Long);
  /**
   * One for each of the request, in their order.
   */
  'objects'?: (_watchfanout_v1_FoundObject)[];
  /**
   * The history that the revision belongs to. Empty: unknown.
   */
  'history_id'?: (string);
  /**
   * How old the response may be, as in GetResponse. Absent: the replica follows the store.
   */
  'stale_for'?: (_google_protobuf_Duration | null);
}

/**
 * The objects at one revision.
 */
export interface BatchGetResponse__Output {
  /**
   * The revision of all of them.
   */
  'revision': (string);
  /**
   * One for each of the request, in their order.
   */
  'objects': (_watchfanout_v1_FoundObject__Output)[];
  /**
   * The history that the revision belongs to. Empty: unknown.
   */
  'history_id': (string);
  /**
   * How old the response may be, as in GetResponse. Absent: the replica follows the store.
   */
  'stale_for': (_google_protobuf_Duration__Output | null);
}
