// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Asks how far one watch of a Subscribe stream is, or all of them together. The response takes no credit, but waits for
 * watches that have no credit to get some, since these deliver nothing.
 */
export interface RequestProgress {
  /**
   * The watch's id. The response is a bookmark of that watch at the store's revision of now, or a later one. 0: all
   * watches that were added before. The response is one Progress for all.
   */
  'id'?: (number | string | Long);
  /**
   * With id 0: any number, which the Progress has as well, such as one that increases with each request.
   */
  'tag'?: (number | string | Long);
}

/**
 * Asks how far one watch of a Subscribe stream is, or all of them together. The response takes no credit, but waits for
 * watches that have no credit to get some, since these deliver nothing.
 */
export interface RequestProgress__Output {
  /**
   * The watch's id. The response is a bookmark of that watch at the store's revision of now, or a later one. 0: all
   * watches that were added before. The response is one Progress for all.
   */
  'id': (string);
  /**
   * With id 0: any number, which the Progress has as well, such as one that increases with each request.
   */
  'tag': (string);
}
