// Original file: proto/watchfanout/v1/lease_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Requests the end of a lease.
 */
export interface RevokeRequest {
  /**
   * The lease.
   */
  'lease'?: (number | string | Long);
}

/**
 * Requests the end of a lease.
 */
export interface RevokeRequest__Output {
  /**
   * The lease.
   */
  'lease': (string);
}
