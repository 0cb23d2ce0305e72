// Original file: proto/watchfanout/v1/lease_service.proto

import type { Renewal as _watchfanout_v1_Renewal, Renewal__Output as _watchfanout_v1_Renewal__Output } from '../../watchfanout/v1/Renewal.ts';

/**
 * The outcome of a request.
 */
export interface KeepAliveResponse {
  /**
   * One for each lease of the request, in their order.
   */
  'renewals'?: (_watchfanout_v1_Renewal)[];
}

/**
 * The outcome of a request.
 */
export interface KeepAliveResponse__Output {
  /**
   * One for each lease of the request, in their order.
   */
  'renewals': (_watchfanout_v1_Renewal__Output)[];
}
