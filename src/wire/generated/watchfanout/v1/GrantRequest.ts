// Original file: proto/watchfanout/v1/lease_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';

/**
 * Requests a lease.
 */
export interface GrantRequest {
  /**
   * Its length, rounded up to whole seconds; at least 1 s.
   */
  'ttl'?: (_google_protobuf_Duration | null);
}

/**
 * Requests a lease.
 */
export interface GrantRequest__Output {
  /**
   * Its length, rounded up to whole seconds; at least 1 s.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
}
