// Original file: proto/watchfanout/v1/lease_service.proto

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from '../../google/protobuf/Duration.ts';
import type { Status as _google_rpc_Status, Status__Output as _google_rpc_Status__Output } from '../../google/rpc/Status.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The outcome for one lease.
 */
export interface Renewal {
  /**
   * The lease.
   */
  'lease'?: (number | string | Long);
  /**
   * How long it lasts from now if it is not renewed again. Absent if it was not renewed.
   */
  'ttl'?: (_google_protobuf_Duration | null);
  /**
   * Why it was not renewed. LEASE_NOT_FOUND: it has ended. Absent if it was renewed.
   */
  'error'?: (_google_rpc_Status | null);
}

/**
 * The outcome for one lease.
 */
export interface Renewal__Output {
  /**
   * The lease.
   */
  'lease': (string);
  /**
   * How long it lasts from now if it is not renewed again. Absent if it was not renewed.
   */
  'ttl': (_google_protobuf_Duration__Output | null);
  /**
   * Why it was not renewed. LEASE_NOT_FOUND: it has ended. Absent if it was renewed.
   */
  'error': (_google_rpc_Status__Output | null);
}
