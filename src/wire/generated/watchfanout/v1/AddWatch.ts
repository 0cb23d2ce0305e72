// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { WatchRequest as _watchfanout_v1_WatchRequest, WatchRequest__Output as _watchfanout_v1_WatchRequest__Output } from '../../watchfanout/v1/WatchRequest.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * Adds a watch to a Subscribe stream.
 */
export interface AddWatch {
  /**
   * The client's name for the watch, from 1 to 2^53 - 1. One that the stream does not use: its watch, if it had one,
   * has ended. Otherwise the request is refused with WATCH_ID_TAKEN.
   */
  'id'?: (number | string | Long);
  /**
   * What to watch, as in a call of Watch.
   */
  'watch'?: (_watchfanout_v1_WatchRequest | null);
  /**
   * How many responses the watch may send before the client grants more. Absent: not limited.
   */
  'messages'?: (number | string | Long);
  /**
   * How many bytes of responses the watch may send before the client grants more. The response that exceeds them
   * is sent whole. Absent: not limited.
   */
  'bytes'?: (number | string | Long);
  '_messages'?: "messages";
  '_bytes'?: "bytes";
}

/**
 * Adds a watch to a Subscribe stream.
 */
export interface AddWatch__Output {
  /**
   * The client's name for the watch, from 1 to 2^53 - 1. One that the stream does not use: its watch, if it had one,
   * has ended. Otherwise the request is refused with WATCH_ID_TAKEN.
   */
  'id': (string);
  /**
   * What to watch, as in a call of Watch.
   */
  'watch': (_watchfanout_v1_WatchRequest__Output | null);
  /**
   * How many responses the watch may send before the client grants more. Absent: not limited.
   */
  'messages'?: (string);
  /**
   * How many bytes of responses the watch may send before the client grants more. The response that exceeds them
   * is sent whole. Absent: not limited.
   */
  'bytes'?: (string);
  '_messages'?: "messages";
  '_bytes'?: "bytes";
}
