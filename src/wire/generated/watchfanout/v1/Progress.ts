// Original file: proto/watchfanout/v1/list_watch_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * How far all watches of a Subscribe stream are together: a consistent cut through everything that it delivers. A
 * transaction over several resources has arrived completely, or has a higher revision.
 */
export interface Progress {
  /**
   * Every watch that was added before the request, and has not ended, has delivered everything up to and including
   * this revision, which is at least the store's revision at the time of the request. It is a resume point of each of
   * them. Some may have delivered more: events with higher revisions belong behind this point.
   */
  'revision'?: (number | string | Long);
  /**
   * The tag of the last request that this answers. The requests before it that have no Progress are answered by this
   * one, too.
   */
  'tag'?: (number | string | Long);
}

/**
 * How far all watches of a Subscribe stream are together: a consistent cut through everything that it delivers. A
 * transaction over several resources has arrived completely, or has a higher revision.
 */
export interface Progress__Output {
  /**
   * Every watch that was added before the request, and has not ended, has delivered everything up to and including
   * this revision, which is at least the store's revision at the time of the request. It is a resume point of each of
   * them. Some may have delivered more: events with higher revisions belong behind this point.
   */
  'revision': (string);
  /**
   * The tag of the last request that this answers. The requests before it that have no Progress are answered by this
   * one, too.
   */
  'tag': (string);
}
