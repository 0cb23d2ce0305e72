// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Event as _watchfanout_v1_Event, Event__Output as _watchfanout_v1_Event__Output } from '../../watchfanout/v1/Event.ts';
import type { HistoryEnd as _watchfanout_v1_HistoryEnd, HistoryEnd__Output as _watchfanout_v1_HistoryEnd__Output } from '../../watchfanout/v1/HistoryEnd.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * One page.
 */
export interface HistoryResponse {
  /**
   * The page has no later changes than this revision. The same on every page. A watch of the key with after_revision set
   * to it continues the history without a gap.
   */
  'revision'?: (number | string | Long);
  /**
   * The changes, the newest first, as a watch would send them. The revision of each is the mod_revision of its object.
   */
  'events'?: (_watchfanout_v1_Event)[];
  /**
   * Requests the next page. The history is complete only when this is empty, even if a page has few changes or none.
   */
  'next_page_token'?: (string);
  /**
   * The history that the revisions belong to.
   */
  'history_id'?: (string);
  /**
   * Why no older changes follow. Only on the last page.
   */
  'end'?: (_watchfanout_v1_HistoryEnd);
  /**
   * All changes after this revision are known. Only on the last page.
   */
  'oldest_revision'?: (number | string | Long);
}

/**
 * One page.
 */
export interface HistoryResponse__Output {
  /**
   * The page has no later changes than this revision. The same on every page. A watch of the key with after_revision set
   * to it continues the history without a gap.
   */
  'revision': (string);
  /**
   * The changes, the newest first, as a watch would send them. The revision of each is the mod_revision of its object.
   */
  'events': (_watchfanout_v1_Event__Output)[];
  /**
   * Requests the next page. The history is complete only when this is empty, even if a page has few changes or none.
   */
  'next_page_token': (string);
  /**
   * The history that the revisions belong to.
   */
  'history_id': (string);
  /**
   * Why no older changes follow. Only on the last page.
   */
  'end': (_watchfanout_v1_HistoryEnd__Output);
  /**
   * All changes after this revision are known. Only on the last page.
   */
  'oldest_revision': (string);
}
