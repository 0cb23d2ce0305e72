// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { RevisionMatch as _watchfanout_v1_RevisionMatch, RevisionMatch__Output as _watchfanout_v1_RevisionMatch__Output } from '../../watchfanout/v1/RevisionMatch.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Asks for one page of the objects of a resource.
 */
export interface ListRequest {
  /**
   * The resource's name.
   */
  'resource'?: (string);
  /**
   * Only keys that begin with this. Empty: all.
   */
  'prefix'?: (string);
  /**
   * Only objects whose labels match, in the Kubernetes grammar. Empty: all.
   */
  'label_selector'?: (string);
  /**
   * Only objects whose fields match, in the Kubernetes grammar. Empty: all.
   */
  'field_selector'?: (string);
  /**
   * How new the answer has to be.
   */
  'revision_match'?: (_watchfanout_v1_RevisionMatch);
  /**
   * The revision that revision_match speaks of; 0 where it speaks of none.
   */
  'revision'?: (number | string | Long);
  /**
   * How many objects a page holds at the most. 0: as many as fit one message.
   */
  'page_size'?: (number);
  /**
   * next_page_token of the page before. With it, every other field but page_size is as in the first
   * call.
   */
  'page_token'?: (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id'?: (string);
}

/**
 * Asks for one page of the objects of a resource.
 */
export interface ListRequest__Output {
  /**
   * The resource's name.
   */
  'resource': (string);
  /**
   * Only keys that begin with this. Empty: all.
   */
  'prefix': (string);
  /**
   * Only objects whose labels match, in the Kubernetes grammar. Empty: all.
   */
  'label_selector': (string);
  /**
   * Only objects whose fields match, in the Kubernetes grammar. Empty: all.
   */
  'field_selector': (string);
  /**
   * How new the answer has to be.
   */
  'revision_match': (_watchfanout_v1_RevisionMatch__Output);
  /**
   * The revision that revision_match speaks of; 0 where it speaks of none.
   */
  'revision': (string);
  /**
   * How many objects a page holds at the most. 0: as many as fit one message.
   */
  'page_size': (number);
  /**
   * next_page_token of the page before. With it, every other field but page_size is as in the first
   * call.
   */
  'page_token': (string);
  /**
   * The history that the revision comes from. If that is no longer the store's, the call fails with
   * HISTORY_CHANGED. Empty: not checked.
   */
  'history_id': (string);
}
