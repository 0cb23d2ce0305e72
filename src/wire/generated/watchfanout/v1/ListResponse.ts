// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * One page.
 */
export interface ListResponse {
  /**
   * The revision of the list, the same on every page. A watch with after_revision set to it continues
   * the list without a gap.
   */
  'revision'?: (number | string | Long);
  /**
   * The objects, in the order of the request.
   */
  'items'?: (_watchfanout_v1_StoredObject)[];
  /**
   * Requests the next page. The list is complete only when this is empty, even if a page has few
   * items or none.
   */
  'next_page_token'?: (string);
  /**
   * Number of objects after this page. Absent: unknown, as before the last page with a selector, and
   * in a page from etcd: for a resource without a cache, or at a revision that the cache does not
   * have. etcd's own count may include keys that are not part of the resource.
   */
  'remaining_item_count'?: (number | string | Long);
  /**
   * The history that the revision belongs to.
   */
  'history_id'?: (string);
  /**
   * How old the response may be, as in GetResponse.
   */
  'stale_for'?: (_google_protobuf_Duration | null);
  '_remaining_item_count'?: "remaining_item_count";
}

/**
 * One page.
 */
export interface ListResponse__Output {
  /**
   * The revision of the list, the same on every page. A watch with after_revision set to it continues
   * the list without a gap.
   */
  'revision': (string);
  /**
   * The objects, in the order of the request.
   */
  'items': (_watchfanout_v1_StoredObject__Output)[];
  /**
   * Requests the next page. The list is complete only when this is empty, even if a page has few
   * items or none.
   */
  'next_page_token': (string);
  /**
   * Number of objects after this page. Absent: unknown, as before the last page with a selector, and
   * in a page from etcd: for a resource without a cache, or at a revision that the cache does not
   * have. etcd's own count may include keys that are not part of the resource.
   */
  'remaining_item_count'?: (string);
  /**
   * The history that the revision belongs to.
   */
  'history_id': (string);
  /**
   * How old the response may be, as in GetResponse.
   */
  'stale_for': (_google_protobuf_Duration__Output | null);
  '_remaining_item_count'?: "remaining_item_count";
}
