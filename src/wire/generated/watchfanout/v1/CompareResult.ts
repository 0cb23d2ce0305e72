// Original file: proto/watchfanout/v1/write_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';

/**
 * What a compare found.
 */
export interface CompareResult {
  /**
   * Whether it held.
   */
  'held'?: (boolean);
  /**
   * The object. Absent: it does not exist.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
}

/**
 * What a compare found.
 */
export interface CompareResult__Output {
  /**
   * Whether it held.
   */
  'held': (boolean);
  /**
   * The object. Absent: it does not exist.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
}
