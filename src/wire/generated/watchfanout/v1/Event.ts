// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { EventType as _watchfanout_v1_EventType, EventType__Output as _watchfanout_v1_EventType__Output } from '../../watchfanout/v1/EventType.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';

/**
 * One change of one object.
 */
export interface Event {
  /**
   * What happened.
   */
  'type'?: (_watchfanout_v1_EventType);
  /**
   * The object after the change. DELETED: as it last was, with the mod_revision that removed it.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * With include_previous, the object just before the change. Absent where there was none, and on
   * initial events.
   */
  'previous'?: (_watchfanout_v1_StoredObject | null);
}

/**
 * One change of one object.
 */
export interface Event__Output {
  /**
   * What happened.
   */
  'type': (_watchfanout_v1_EventType__Output);
  /**
   * The object after the change. DELETED: as it last was, with the mod_revision that removed it.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * With include_previous, the object just before the change. Absent where there was none, and on
   * initial events.
   */
  'previous': (_watchfanout_v1_StoredObject__Output | null);
}
