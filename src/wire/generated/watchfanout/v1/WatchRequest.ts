// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Delivery as _watchfanout_v1_Delivery, Delivery__Output as _watchfanout_v1_Delivery__Output } from '../../watchfanout/v1/Delivery.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { View as _watchfanout_v1_View, View__Output as _watchfanout_v1_View__Output } from '../../watchfanout/v1/View.ts';
import type { EventType as _watchfanout_v1_EventType, EventType__Output as _watchfanout_v1_EventType__Output } from '../../watchfanout/v1/EventType.ts';
import type { Shard as _watchfanout_v1_Shard, Shard__Output as _watchfanout_v1_Shard__Output } from '../../watchfanout/v1/Shard.ts';
import type { FieldMask as _google_protobuf_FieldMask, FieldMask__Output as _google_protobuf_FieldMask__Output } from '../../google/protobuf/FieldMask.ts';
import type { KeyRange as _watchfanout_v1_KeyRange, KeyRange__Output as _watchfanout_v1_KeyRange__Output } from '../../watchfanout/v1/KeyRange.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests a watch.
 */
export interface WatchRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * This one key.
   */
  'key'?: (string);
  /**
   * All keys with this prefix.
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
   * Sends events after this revision, which is the last resume point or the revision of a List.
   * Absent: from now on. With send_initial_events: the initial state is at least this new; 0: any state
   * that the cache has.
   */
  'after_revision'?: (number | string | Long);
  /**
   * Sends the current state first, as ADDED events in key order.
   */
  'send_initial_events'?: (boolean);
  /**
   * What a slow stream receives.
   */
  'delivery'?: (_watchfanout_v1_Delivery);
  /**
   * Whether events have the object before the change.
   */
  'include_previous'?: (boolean);
  /**
   * Maximum time without a new resume point, after which a bookmark is sent. Default 60 s, at least
   * 1 s.
   */
  'bookmark_interval'?: (_google_protobuf_Duration | null);
  /**
   * The history that after_revision comes from. If that is no longer the store's, the stream ends
   * with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * Sends a bookmark also whenever the cache learns of a newer revision. For downstream caches.
   */
  'eager_bookmarks'?: (boolean);
  /**
   * What of each object events have. Not VIEW_COUNT.
   */
  'view'?: (_watchfanout_v1_View);
  /**
   * Only events of these types. With send_initial_events, EVENT_TYPE_ADDED must be one of them. Empty: all types.
   */
  'event_types'?: (_watchfanout_v1_EventType)[];
  /**
   * Only keys of this part. Absent: all.
   */
  'shard'?: (_watchfanout_v1_Shard | null);
  /**
   * The parts of each value that events have, as in a List. An object whose other parts change is sent as well.
   */
  'read_mask'?: (_google_protobuf_FieldMask | null);
  /**
   * All keys of this range.
   */
  'range'?: (_watchfanout_v1_KeyRange | null);
  /**
   * The keys to watch. Neither, or an empty prefix: all.
   */
  'scope'?: "key"|"prefix"|"range";
  '_after_revision'?: "after_revision";
}

/**
 * Requests a watch.
 */
export interface WatchRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * This one key.
   */
  'key'?: (string);
  /**
   * All keys with this prefix.
   */
  'prefix'?: (string);
  /**
   * Only objects whose labels match, in the Kubernetes grammar. Empty: all.
   */
  'label_selector': (string);
  /**
   * Only objects whose fields match, in the Kubernetes grammar. Empty: all.
   */
  'field_selector': (string);
  /**
   * Sends events after this revision, which is the last resume point or the revision of a List.
   * Absent: from now on. With send_initial_events: the initial state is at least this new; 0: any state
   * that the cache has.
   */
  'after_revision'?: (string);
  /**
   * Sends the current state first, as ADDED events in key order.
   */
  'send_initial_events': (boolean);
  /**
   * What a slow stream receives.
   */
  'delivery': (_watchfanout_v1_Delivery__Output);
  /**
   * Whether events have the object before the change.
   */
  'include_previous': (boolean);
  /**
   * Maximum time without a new resume point, after which a bookmark is sent. Default 60 s, at least
   * 1 s.
   */
  'bookmark_interval': (_google_protobuf_Duration__Output | null);
  /**
   * The history that after_revision comes from. If that is no longer the store's, the stream ends
   * with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * Sends a bookmark also whenever the cache learns of a newer revision. For downstream caches.
   */
  'eager_bookmarks': (boolean);
  /**
   * What of each object events have. Not VIEW_COUNT.
   */
  'view': (_watchfanout_v1_View__Output);
  /**
   * Only events of these types. With send_initial_events, EVENT_TYPE_ADDED must be one of them. Empty: all types.
   */
  'event_types': (_watchfanout_v1_EventType__Output)[];
  /**
   * Only keys of this part. Absent: all.
   */
  'shard': (_watchfanout_v1_Shard__Output | null);
  /**
   * The parts of each value that events have, as in a List. An object whose other parts change is sent as well.
   */
  'read_mask': (_google_protobuf_FieldMask__Output | null);
  /**
   * All keys of this range.
   */
  'range'?: (_watchfanout_v1_KeyRange__Output | null);
  /**
   * The keys to watch. Neither, or an empty prefix: all.
   */
  'scope'?: "key"|"prefix"|"range";
  '_after_revision'?: "after_revision";
}
