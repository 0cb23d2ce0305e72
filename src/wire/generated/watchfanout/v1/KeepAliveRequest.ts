// Original file: proto/watchfanout/v1/lease_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Renews leases.
 */
export interface KeepAliveRequest {
  /**
   * The leases, up to 10,000. Each lasts its whole length from some time after the request was sent. Renewals of a lease
   * that are asked for within 300 ms are one, so the later ones have their response then.
   */
  'leases'?: (number | string | Long)[];
}

/**
 * Renews leases.
 */
export interface KeepAliveRequest__Output {
  /**
   * The leases, up to 10,000. Each lasts its whole length from some time after the request was sent. Renewals of a lease
   * that are asked for within 300 ms are one, so the later ones have their response then.
   */
  'leases': (string)[];
}
