// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Event as _watchfanout_v1_Event, Event__Output as _watchfanout_v1_Event__Output } from '../../watchfanout/v1/Event.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Some changes, a new resume point, or both.
 * 
 * Responses without a revision leave a unit open (the initial state, or one revision too large for a
 * message); the next response that carries a revision closes it. A client that needs atomicity holds
 * the events of an open unit back, and drops them when the stream ends before it is closed.
 */
export interface WatchResponse {
  /**
   * The resume point: all that the request asks for, up to and including this revision, has been
   * sent. A new stream with after_revision set to it, to any replica, continues without gap or
   * repetition. Without events this is a bookmark.
   */
  'revision'?: (number | string | Long);
  /**
   * The changes, in the order of their revisions.
   */
  'events'?: (_watchfanout_v1_Event)[];
  /**
   * Set on the response that completes the initial state.
   */
  'initial_events_end'?: (boolean);
  /**
   * The history that the revisions belong to. On the first response of a stream.
   */
  'history_id'?: (string);
  '_revision'?: "revision";
}

/**
 * Some changes, a new resume point, or both.
 * 
 * Responses without a revision leave a unit open (the initial state, or one revision too large for a
 * message); the next response that carries a revision closes it. A client that needs atomicity holds
 * the events of an open unit back, and drops them when the stream ends before it is closed.
 */
export interface WatchResponse__Output {
  /**
   * The resume point: all that the request asks for, up to and including this revision, has been
   * sent. A new stream with after_revision set to it, to any replica, continues without gap or
   * repetition. Without events this is a bookmark.
   */
  'revision'?: (string);
  /**
   * The changes, in the order of their revisions.
   */
  'events': (_watchfanout_v1_Event__Output)[];
  /**
   * Set on the response that completes the initial state.
   */
  'initial_events_end': (boolean);
  /**
   * The history that the revisions belong to. On the first response of a stream.
   */
  'history_id': (string);
  '_revision'?: "revision";
}
