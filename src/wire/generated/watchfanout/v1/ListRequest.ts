// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { RevisionMatch as _watchfanout_v1_RevisionMatch, RevisionMatch__Output as _watchfanout_v1_RevisionMatch__Output } from '../../watchfanout/v1/RevisionMatch.ts';
import type { View as _watchfanout_v1_View, View__Output as _watchfanout_v1_View__Output } from '../../watchfanout/v1/View.ts';
import type { Shard as _watchfanout_v1_Shard, Shard__Output as _watchfanout_v1_Shard__Output } from '../../watchfanout/v1/Shard.ts';
import type { FieldMask as _google_protobuf_FieldMask, FieldMask__Output as _google_protobuf_FieldMask__Output } from '../../google/protobuf/FieldMask.ts';
import type { Order as _watchfanout_v1_Order, Order__Output as _watchfanout_v1_Order__Output } from '../../watchfanout/v1/Order.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests one page of the objects of a resource.
 */
export interface ListRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * Only keys with this prefix. Empty: all.
   */
  'prefix'?: (string);
  /**
   * Only objects whose labels match, in the Kubernetes grammar. Empty: all.
   */
  'label_selector'?: (string);
  /**
   * Only objects whose fields match, in the Kubernetes grammar. Empty: all.
   */
  'field_selector'?: (string);
  /**
   * How recent the response has to be.
   */
  'revision_match'?: (_watchfanout_v1_RevisionMatch);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision'?: (number | string | Long);
  /**
   * Maximum number of objects of a page. 0: as many as fit one message.
   */
  'page_size'?: (number);
  /**
   * next_page_token of the page before. With it, every other field except page_size must be as in
   * the first call.
   */
  'page_token'?: (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * What of each object the page has.
   */
  'view'?: (_watchfanout_v1_View);
  /**
   * Only keys of this part. Absent: all.
   */
  'shard'?: (_watchfanout_v1_Shard | null);
  /**
   * The parts of each value that the page has, of a resource with a codec, with VIEW_FULL. The value is sent in its own
   * format with nothing but these. Paths are those of the codec: names with a dot between, which lead through JSON objects
   * or protobuf messages, to anything. At most 128 paths. Absent, without paths, or with the path "*": the whole value.
   */
  'read_mask'?: (_google_protobuf_FieldMask | null);
  /**
   * Only this key and those above it, by their UTF-8 bytes. Empty: from the first one on. It need not be the key of an
   * object, nor have the prefix.
   */
  'start_key'?: (string);
  /**
   * Only keys below this one, which is not included. Empty: up to the last one.
   */
  'end_key'?: (string);
  /**
   * The order of the objects, over all pages. A list of many objects takes least in key order; one that only the store
   * can answer, as without a cache, fails with LIST_TOO_LARGE in any other if there are too many.
   */
  'order'?: (_watchfanout_v1_Order);
}

/**
 * Requests one page of the objects of a resource.
 */
export interface ListRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * Only keys with this prefix. Empty: all.
   */
  'prefix': (string);
  /**
   * Only objects whose labels match, in the Kubernetes grammar. Empty: all.
   */
  'label_selector': (string);
  /**
   * Only objects whose fields match, in the Kubernetes grammar. Empty: all.
   */
  'field_selector': (string);
  /**
   * How recent the response has to be.
   */
  'revision_match': (_watchfanout_v1_RevisionMatch__Output);
  /**
   * The revision of revision_match; 0 for a match without a revision.
   */
  'revision': (string);
  /**
   * Maximum number of objects of a page. 0: as many as fit one message.
   */
  'page_size': (number);
  /**
   * next_page_token of the page before. With it, every other field except page_size must be as in
   * the first call.
   */
  'page_token': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * What of each object the page has.
   */
  'view': (_watchfanout_v1_View__Output);
  /**
   * Only keys of this part. Absent: all.
   */
  'shard': (_watchfanout_v1_Shard__Output | null);
  /**
   * The parts of each value that the page has, of a resource with a codec, with VIEW_FULL. The value is sent in its own
   * format with nothing but these. Paths are those of the codec: names with a dot between, which lead through JSON objects
   * or protobuf messages, to anything. At most 128 paths. Absent, without paths, or with the path "*": the whole value.
   */
  'read_mask': (_google_protobuf_FieldMask__Output | null);
  /**
   * Only this key and those above it, by their UTF-8 bytes. Empty: from the first one on. It need not be the key of an
   * object, nor have the prefix.
   */
  'start_key': (string);
  /**
   * Only keys below this one, which is not included. Empty: up to the last one.
   */
  'end_key': (string);
  /**
   * The order of the objects, over all pages. A list of many objects takes least in key order; one that only the store
   * can answer, as without a cache, fails with LIST_TOO_LARGE in any other if there are too many.
   */
  'order': (_watchfanout_v1_Order__Output);
}
