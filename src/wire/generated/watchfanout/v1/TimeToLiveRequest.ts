// Original file: proto/watchfanout/v1/lease_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Requests what is known of a lease.
 */
export interface TimeToLiveRequest {
  /**
   * The lease.
   */
  'lease'?: (number | string | Long);
  /**
   * Whether the response names the attached objects.
   */
  'objects'?: (boolean);
}

/**
 * Requests what is known of a lease.
 */
export interface TimeToLiveRequest__Output {
  /**
   * The lease.
   */
  'lease': (string);
  /**
   * Whether the response names the attached objects.
   */
  'objects': (boolean);
}
