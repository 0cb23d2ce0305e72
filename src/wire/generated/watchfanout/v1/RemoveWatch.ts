// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Removes a watch from a Subscribe stream. The response is its end, with the status OK.
 */
export interface RemoveWatch {
  /**
   * The watch's id. The request is refused with UNKNOWN_WATCH if the stream has no such watch.
   */
  'id'?: (number | string | Long);
}

/**
 * Removes a watch from a Subscribe stream. The response is its end, with the status OK.
 */
export interface RemoveWatch__Output {
  /**
   * The watch's id. The request is refused with UNKNOWN_WATCH if the stream has no such watch.
   */
  'id': (string);
}
