// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Delivery as _watchfanout_v1_Delivery, Delivery__Output as _watchfanout_v1_Delivery__Output } from '../../watchfanout/v1/Delivery.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Asks to follow changes.
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
   * All keys that begin with this.
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
   * Sends what came after this revision, which is the last resume point or the revision of a List.
   * Absent: from now. With send_initial_events: the state that is sent is at least this new, and 0
   * takes any that the cache holds.
   */
  'after_revision'?: (number | string | Long);
  /**
   * Sends the current state first, as ADDED events in key order.
   */
  'send_initial_events'?: (boolean);
  /**
   * What a slow stream is owed.
   */
  'delivery'?: (_watchfanout_v1_Delivery);
  /**
   * Whether events carry the object as it stood just before.
   */
  'include_previous'?: (boolean);
  /**
   * How long the resume point may stand still before a bookmark moves it. Default 60 s, at least
   * 1 s.
   */
  'bookmark_interval'?: (_google_protobuf_Duration | null);
  /**
   * The history that after_revision comes from. If that is no longer the store's, the stream ends
   * with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * Sends a bookmark also whenever the cache learns of a newer revision. For caches that stand on
   * this one.
   */
  'eager_bookmarks'?: (boolean);
  /**
   * Which keys to follow. Neither, or an empty prefix: all.
   */
  'scope'?: "key"|"prefix";
  '_after_revision'?: "after_revision";
}

/**
 * Asks to follow changes.
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
   * All keys that begin with this.
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
   * Sends what came after this revision, which is the last resume point or the revision of a List.
   * Absent: from now. With send_initial_events: the state that is sent is at least this new, and 0
   * takes any that the cache holds.
   */
  'after_revision'?: (string);
  /**
   * Sends the current state first, as ADDED events in key order.
   */
  'send_initial_events': (boolean);
  /**
   * What a slow stream is owed.
   */
  'delivery': (_watchfanout_v1_Delivery__Output);
  /**
   * Whether events carry the object as it stood just before.
   */
  'include_previous': (boolean);
  /**
   * How long the resume point may stand still before a bookmark moves it. Default 60 s, at least
   * 1 s.
   */
  'bookmark_interval': (_google_protobuf_Duration__Output | null);
  /**
   * The history that after_revision comes from. If that is no longer the store's, the stream ends
   * with HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * Sends a bookmark also whenever the cache learns of a newer revision. For caches that stand on
   * this one.
   */
  'eager_bookmarks': (boolean);
  /**
   * Which keys to follow. Neither, or an empty prefix: all.
   */
  'scope'?: "key"|"prefix";
  '_after_revision'?: "after_revision";
}
