// Original file: proto/watchfanout/v1/lease_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * A lease.
 */
export interface GrantResponse {
  /**
   * Its id, above 0.
   */
  'lease'?: (number | string | Long);
  /**
   * Its length: that of the request, or the store's minimum if that is longer.
   */
  'ttl'?: (_google_protobuf_Duration | null);
}

/**
 * A lease.
 */
export interface GrantResponse__Output {
  /**
   * Its id, above 0.
   */
  'lease': (string);
  /**
   * Its length: that of the request, or the store's minimum if that is longer.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
}
