// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Event as _watchfanout_v1_Event, Event__Output as _watchfanout_v1_Event__Output } from '../../watchfanout/v1/Event.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Events, a new resume point, or both.
 * 
 * Responses without a revision belong to an atomic batch: the initial state, a coalesced backlog, or a
 * revision that is too large for one message. The next response with a revision completes it. A client
 * that needs atomicity holds the events of an incomplete batch, and drops them if the stream ends before
 * the batch is complete.
 */
export interface WatchResponse {
  /**
   * The resume point: everything requested, up to and including this revision, has been sent. A new
   * stream with after_revision set to it, to any replica, continues without gap or repetition. A
   * response without events is a bookmark.
   */
  'revision'?: (number | string | Long);
  /**
   * The events, in the order of their revisions.
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
 * Events, a new resume point, or both.
 * 
 * Responses without a revision belong to an atomic batch: the initial state, a coalesced backlog, or a
 * revision that is too large for one message. The next response with a revision completes it. A client
 * that needs atomicity holds the events of an incomplete batch, and drops them if the stream ends before
 * the batch is complete.
 */
export interface WatchResponse__Output {
  /**
   * The resume point: everything requested, up to and including this revision, has been sent. A new
   * stream with after_revision set to it, to any replica, continues without gap or repetition. A
   * response without events is a bookmark.
   */
  'revision'?: (string);
  /**
   * The events, in the order of their revisions.
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
