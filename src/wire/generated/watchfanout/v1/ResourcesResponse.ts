// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Resource as _watchfanout_v1_Resource, Resource__Output as _watchfanout_v1_Resource__Output } from '../../watchfanout/v1/Resource.ts';

/**
 * One page of the resources of the server.
 */
export interface ResourcesResponse {
  /**
   * The resources, in the order of their names.
   */
  'resources'?: (_watchfanout_v1_Resource)[];
  /**
   * Whether more resources follow.
   */
  'has_more'?: (boolean);
  /**
   * Requests the next page. Empty: this is the last one.
   */
  'next_page_token'?: (string);
}

/**
 * One page of the resources of the server.
 */
export interface ResourcesResponse__Output {
  /**
   * The resources, in the order of their names.
   */
  'resources': (_watchfanout_v1_Resource__Output)[];
  /**
   * Whether more resources follow.
   */
  'has_more': (boolean);
  /**
   * Requests the next page. Empty: this is the last one.
   */
  'next_page_token': (string);
}
