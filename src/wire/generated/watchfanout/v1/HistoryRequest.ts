// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { View as _watchfanout_v1_View, View__Output as _watchfanout_v1_View__Output } from '../../watchfanout/v1/View.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Requests one page of the history of an object.
 */
export interface HistoryRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key'?: (string);
  /**
   * Only changes up to this revision. 0: up to the store's revision, at least as new as every write that completed
   * before the call began.
   */
  'revision'?: (number | string | Long);
  /**
   * Maximum number of changes of a page, at most 1,000. 0: 1,000, or as many as fit one message.
   */
  'page_size'?: (number);
  /**
   * next_page_token of the page before. With it, every other field except page_size must be as in the first call.
   */
  'page_token'?: (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
  /**
   * What of each object the page has. Not VIEW_COUNT.
   */
  'view'?: (_watchfanout_v1_View);
}

/**
 * Requests one page of the history of an object.
 */
export interface HistoryRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * The object's key, relative to the resource's prefix.
   */
  'key': (string);
  /**
   * Only changes up to this revision. 0: up to the store's revision, at least as new as every write that completed
   * before the call began.
   */
  'revision': (string);
  /**
   * Maximum number of changes of a page, at most 1,000. 0: 1,000, or as many as fit one message.
   */
  'page_size': (number);
  /**
   * next_page_token of the page before. With it, every other field except page_size must be as in the first call.
   */
  'page_token': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
  /**
   * What of each object the page has. Not VIEW_COUNT.
   */
  'view': (_watchfanout_v1_View__Output);
}
