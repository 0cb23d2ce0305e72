// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * The hashes from the first to the last, both included.
 */
export interface HashRange {
  /**
   * The first hash.
   */
  'first'?: (number | string | Long);
  /**
   * The last hash.
   */
  'last'?: (number | string | Long);
}

/**
 * The hashes from the first to the last, both included.
 */
export interface HashRange__Output {
  /**
   * The first hash.
   */
  'first': (string);
  /**
   * The last hash.
   */
  'last': (string);
}
