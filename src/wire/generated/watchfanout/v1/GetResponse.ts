// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The requested object. An absent object is the error OBJECT_NOT_FOUND.
 */
export interface GetResponse {
  /**
   * The revision of the store that the response reflects.
   */
  'revision'?: (number | string | Long);
  /**
   * The object.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * The history that the revision belongs to.
   */
  'history_id'?: (string);
  /**
   * How old the response may be: the server received nothing from its own source for this long, and can't
   * reach it now. Only with REVISION_MATCH_ANY and _NOT_OLDER_THAN. Absent: the server follows its source.
   */
  'stale_for'?: (_google_protobuf_Duration | null);
}

/**
 * The requested object. An absent object is the error OBJECT_NOT_FOUND.
 */
export interface GetResponse__Output {
  /**
   * The revision of the store that the response reflects.
   */
  'revision': (string);
  /**
   * The object.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * The history that the revision belongs to.
   */
  'history_id': (string);
  /**
   * How old the response may be: the server received nothing from its own source for this long, and can't
   * reach it now. Only with REVISION_MATCH_ANY and _NOT_OLDER_THAN. Absent: the server follows its source.
   */
  'stale_for': (_google_protobuf_Duration__Output | null);
}
