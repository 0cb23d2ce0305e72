// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { EventType as _watchfanout_v1_EventType, EventType__Output as _watchfanout_v1_EventType__Output } from '../../watchfanout/v1/EventType.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from '../../watchfanout/v1/StoredObject.ts';

/**
 * One change of one object.
 */
export interface Event {
  /**
   * The type of the change.
   */
  'type'?: (_watchfanout_v1_EventType);
  /**
   * The object after the change. DELETED: its last content, with the mod_revision of the deletion.
   */
  'object'?: (_watchfanout_v1_StoredObject | null);
  /**
   * With include_previous, the object before the change. Absent if the object did not exist, and in
   * initial events.
   */
  'previous'?: (_watchfanout_v1_StoredObject | null);
}

/**
 * One change of one object.
 */
export interface Event__Output {
  /**
   * The type of the change.
   */
  'type': (_watchfanout_v1_EventType__Output);
  /**
   * The object after the change. DELETED: its last content, with the mod_revision of the deletion.
   */
  'object': (_watchfanout_v1_StoredObject__Output | null);
  /**
   * With include_previous, the object before the change. Absent if the object did not exist, and in
   * initial events.
   */
  'previous': (_watchfanout_v1_StoredObject__Output | null);
}
