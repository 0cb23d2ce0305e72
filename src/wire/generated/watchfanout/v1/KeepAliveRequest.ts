// Original file: proto/watchfanout/v1/lease_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Renews leases.
 */
export interface KeepAliveRequest {
  /**
   * The leases, up to 10,000. Each lasts its whole length from some time after the request was sent.
   */
  'leases'?: (number | string | Long)[];
}

/**
 * Renews leases.
 */
export interface KeepAliveRequest__Output {
  /**
   * The leases, up to 10,000. Each lasts its whole length from some time after the request was sent.
   */
  'leases': (string)[];
}
