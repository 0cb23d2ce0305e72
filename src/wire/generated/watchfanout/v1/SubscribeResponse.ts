// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { WatchResponse as _watchfanout_v1_WatchResponse, WatchResponse__Output as _watchfanout_v1_WatchResponse__Output } from '../../watchfanout/v1/WatchResponse.ts';
import type { Status as _google_rpc_Status, Status__Output as _google_rpc_Status__Output } from '../../google/rpc/Status.ts';
import type { Progress as _watchfanout_v1_Progress, Progress__Output as _watchfanout_v1_Progress__Output } from '../../watchfanout/v1/Progress.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * One response of a Subscribe stream.
 */
export interface SubscribeResponse {
  /**
   * The watch that it belongs to. 0: the whole stream, or a request without a valid id.
   */
  'id'?: (number | string | Long);
  /**
   * A response of the watch, as a call of Watch would send it.
   */
  'watch'?: (_watchfanout_v1_WatchResponse | null);
  /**
   * The watch has ended, and its id may be used again. OK: the client has removed it. Otherwise with the status and
   * the details that a call of Watch would have ended with.
   */
  'ended'?: (_google_rpc_Status | null);
  /**
   * A request with this id was refused, and had no effect.
   */
  'refused'?: (_google_rpc_Status | null);
  /**
   * The response to RequestProgress for all watches.
   */
  'progress'?: (_watchfanout_v1_Progress | null);
  /**
   * What is sent.
   */
  'response'?: "watch"|"ended"|"refused"|"progress";
}

/**
 * One response of a Subscribe stream.
 */
export interface SubscribeResponse__Output {
  /**
   * The watch that it belongs to. 0: the whole stream, or a request without a valid id.
   */
  'id': (string);
  /**
   * A response of the watch, as a call of Watch would send it.
   */
  'watch'?: (_watchfanout_v1_WatchResponse__Output | null);
  /**
   * The watch has ended, and its id may be used again. OK: the client has removed it. Otherwise with the status and
   * the details that a call of Watch would have ended with.
   */
  'ended'?: (_google_rpc_Status__Output | null);
  /**
   * A request with this id was refused, and had no effect.
   */
  'refused'?: (_google_rpc_Status__Output | null);
  /**
   * The response to RequestProgress for all watches.
   */
  'progress'?: (_watchfanout_v1_Progress__Output | null);
  /**
   * What is sent.
   */
  'response'?: "watch"|"ended"|"refused"|"progress";
}
