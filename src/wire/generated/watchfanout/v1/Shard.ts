// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { HashRange as _watchfanout_v1_HashRange, HashRange__Output as _watchfanout_v1_HashRange__Output } from '../../watchfanout/v1/HashRange.ts';

/**
 * A part of the keys, by their hash: XXH64 with seed 0 of the key's UTF-8 bytes, read as an unsigned number. Members
 * that share the work of a resource take ranges that together are all hashes.
 */
export interface Shard {
  /**
   * Keys with a hash in one of these. At least one, at most 1,024, which do not overlap.
   */
  'ranges'?: (_watchfanout_v1_HashRange)[];
}

/**
 * A part of the keys, by their hash: XXH64 with seed 0 of the key's UTF-8 bytes, read as an unsigned number. Members
 * that share the work of a resource take ranges that together are all hashes.
 */
export interface Shard__Output {
  /**
   * Keys with a hash in one of these. At least one, at most 1,024, which do not overlap.
   */
  'ranges': (_watchfanout_v1_HashRange__Output)[];
}
