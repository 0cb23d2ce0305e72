// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * Adds to the credit of a watch of a Subscribe stream. Without credit a watch is like a stream that is not read:
 * what it delivers when it gets credit depends on its delivery, and it ends with SLOW_CONSUMER when the time or the
 * memory for what waits is over.
 */
export interface GrantCredit {
  /**
   * The watch's id. The request is refused with UNKNOWN_WATCH if the stream has no such watch.
   */
  'id'?: (number | string | Long);
  /**
   * Number of further responses. Only for a watch that was added with `messages`.
   */
  'messages'?: (number | string | Long);
  /**
   * Number of further bytes of responses. Only for a watch that was added with `bytes`.
   */
  'bytes'?: (number | string | Long);
}

/**
 * Adds to the credit of a watch of a Subscribe stream. Without credit a watch is like a stream that is not read:
 * what it delivers when it gets credit depends on its delivery, and it ends with SLOW_CONSUMER when the time or the
 * memory for what waits is over.
 */
export interface GrantCredit__Output {
  /**
   * The watch's id. The request is refused with UNKNOWN_WATCH if the stream has no such watch.
   */
  'id': (string);
  /**
   * Number of further responses. Only for a watch that was added with `messages`.
   */
  'messages': (string);
  /**
   * Number of further bytes of responses. Only for a watch that was added with `bytes`.
   */
  'bytes': (string);
}
