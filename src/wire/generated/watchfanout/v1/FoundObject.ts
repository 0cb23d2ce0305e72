// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';

/**
 * What was found of a name.
 */
export interface FoundObject {
  /**
   * The object. Absent: it does not exist.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
}

/**
 * What was found of a name.
 */
export interface FoundObject__Output {
  /**
   * The object. Absent: it does not exist.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
}
