// Original file: proto/watchfanout/v1/lease_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { ObjectName as _watchfanout_v1_ObjectName, ObjectName__Output as _watchfanout_v1_ObjectName__Output } from '../../watchfanout/v1/ObjectName.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * What is known of a lease.
 */
export interface TimeToLiveResponse {
  /**
   * How long it lasts if it is not renewed.
   */
  'ttl'?: (_google_protobuf_Duration | null);
  /**
   * The length that it was granted.
   */
  'granted_ttl'?: (_google_protobuf_Duration | null);
  /**
   * The attached objects of served resources, if they were asked for, in no particular order.
   */
  'objects'?: (_watchfanout_v1_ObjectName)[];
  /**
   * The number of attached keys that are of no served resource, if the objects were asked for.
   */
  'others'?: (number | string | Long);
}

/**
 * What is known of a lease.
 */
export interface TimeToLiveResponse__Output {
  /**
   * How long it lasts if it is not renewed.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
  /**
   * The length that it was granted.
   */
  'granted_ttl': (_google_protobuf_Duration__Output | null);
  /**
   * The attached objects of served resources, if they were asked for, in no particular order.
   */
  'objects': (_watchfanout_v1_ObjectName__Output)[];
  /**
   * The number of attached keys that are of no served resource, if the objects were asked for.
   */
  'others': (string);
}
