// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Codec as _watchfanout_v1_Codec, Codec__Output as _watchfanout_v1_Codec__Output } from '../../watchfanout/v1/Codec.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { EtcdKeys as _watchfanout_v1_EtcdKeys, EtcdKeys__Output as _watchfanout_v1_EtcdKeys__Output } from '../../watchfanout/v1/EtcdKeys.ts';
import type { View as _watchfanout_v1_View, View__Output as _watchfanout_v1_View__Output } from '../../watchfanout/v1/View.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * A resource, as this server serves it.
 */
export interface Resource {
  /**
   * The resource's name.
   */
  'name'?: (string);
  /**
   * How labels and fields are read.
   */
  'codec'?: (_watchfanout_v1_Codec);
  /**
   * Whether the server has a cache of it. Without one it can't be watched.
   */
  'cached'?: (boolean);
  /**
   * The revision of the cache. 0: there is no cache, or it has not synced yet.
   */
  'revision'?: (number | string | Long);
  /**
   * The history that the revision belongs to.
   */
  'history_id'?: (string);
  /**
   * Whether the caller may get, list and watch all of it, as a relay does.
   */
  'readable_in_full'?: (boolean);
  /**
   * How old the cache may be, as in GetResponse.
   */
  'stale_for'?: (_google_protobuf_Duration | null);
  /**
   * Its keys in etcd. Absent: this server does not serve them to the caller by etcd's own API.
   */
  'etcd_keys'?: (_watchfanout_v1_EtcdKeys | null);
  /**
   * The fields that field selectors may name, in the order of their names.
   */
  'fields'?: (string)[];
  /**
   * Those of them for which a selector that requires one value is fast.
   */
  'indexed_fields'?: (string)[];
  /**
   * A watch after this revision, or a later one, resumes from the cache; one after an older one from the store, unless that
   * is compacted. 0: there is no cache, or it has not synced yet.
   */
  'oldest_revision'?: (number | string | Long);
  /**
   * The views that a List may ask for.
   */
  'views'?: (_watchfanout_v1_View)[];
}

/**
 * A resource, as this server serves it.
 */
export interface Resource__Output {
  /**
   * The resource's name.
   */
  'name': (string);
  /**
   * How labels and fields are read.
   */
  'codec': (_watchfanout_v1_Codec__Output);
  /**
   * Whether the server has a cache of it. Without one it can't be watched.
   */
  'cached': (boolean);
  /**
   * The revision of the cache. 0: there is no cache, or it has not synced yet.
   */
  'revision': (string);
  /**
   * The history that the revision belongs to.
   */
  'history_id': (string);
  /**
   * Whether the caller may get, list and watch all of it, as a relay does.
   */
  'readable_in_full': (boolean);
  /**
   * How old the cache may be, as in GetResponse.
   */
  'stale_for': (_google_protobuf_Duration__Output | null);
  /**
   * Its keys in etcd. Absent: this server does not serve them to the caller by etcd's own API.
   */
  'etcd_keys': (_watchfanout_v1_EtcdKeys__Output | null);
  /**
   * The fields that field selectors may name, in the order of their names.
   */
  'fields': (string)[];
  /**
   * Those of them for which a selector that requires one value is fast.
   */
  'indexed_fields': (string)[];
  /**
   * A watch after this revision, or a later one, resumes from the cache; one after an older one from the store, unless that
   * is compacted. 0: there is no cache, or it has not synced yet.
   */
  'oldest_revision': (string);
  /**
   * The views that a List may ask for.
   */
  'views': (_watchfanout_v1_View__Output)[];
}
