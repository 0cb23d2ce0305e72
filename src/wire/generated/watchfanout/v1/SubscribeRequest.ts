// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { AddWatch as _watchfanout_v1_AddWatch, AddWatch__Output as _watchfanout_v1_AddWatch__Output } from '../../watchfanout/v1/AddWatch.ts';
import type { RemoveWatch as _watchfanout_v1_RemoveWatch, RemoveWatch__Output as _watchfanout_v1_RemoveWatch__Output } from '../../watchfanout/v1/RemoveWatch.ts';
import type { GrantCredit as _watchfanout_v1_GrantCredit, GrantCredit__Output as _watchfanout_v1_GrantCredit__Output } from '../../watchfanout/v1/GrantCredit.ts';
import type { RequestProgress as _watchfanout_v1_RequestProgress, RequestProgress__Output as _watchfanout_v1_RequestProgress__Output } from '../../watchfanout/v1/RequestProgress.ts';

/**
 * One request of a Subscribe stream. A request that is refused has no effect, and leaves the rest of the stream as it is.
 */
export interface SubscribeRequest {
  /**
   * Adds a watch.
   */
  'add'?: (_watchfanout_v1_AddWatch | null);
  /**
   * Removes a watch.
   */
  'remove'?: (_watchfanout_v1_RemoveWatch | null);
  /**
   * Lets a watch with credit send more.
   */
  'grant'?: (_watchfanout_v1_GrantCredit | null);
  /**
   * Asks how far the watches are.
   */
  'progress'?: (_watchfanout_v1_RequestProgress | null);
  /**
   * What is requested. Requests take effect in their order.
   */
  'request'?: "add"|"remove"|"grant"|"progress";
}

/**
 * One request of a Subscribe stream. A request that is refused has no effect, and leaves the rest of the stream as it is.
 */
export interface SubscribeRequest__Output {
  /**
   * Adds a watch.
   */
  'add'?: (_watchfanout_v1_AddWatch__Output | null);
  /**
   * Removes a watch.
   */
  'remove'?: (_watchfanout_v1_RemoveWatch__Output | null);
  /**
   * Lets a watch with credit send more.
   */
  'grant'?: (_watchfanout_v1_GrantCredit__Output | null);
  /**
   * Asks how far the watches are.
   */
  'progress'?: (_watchfanout_v1_RequestProgress__Output | null);
  /**
   * What is requested. Requests take effect in their order.
   */
  'request'?: "add"|"remove"|"grant"|"progress";
}
