// Original file: proto/watchfanout/v1/write_service.proto

import type { Long } from '@grpc/proto-loader';

/**
 * The number of deleted objects.
 */
export interface DeletePrefixResponse {
  /**
   * The revision of the deletion. If nothing was deleted: a revision at which there was no such object. With
   * validate_only: the revision of the count.
   */
  'revision'?: (number | string | Long);
  /**
   * The number of objects that were deleted; with validate_only: that would be.
   */
  'deleted'?: (number | string | Long);
  /**
   * As in PutResponse.
   */
  'history_id'?: (string);
}

/**
 * The number of deleted objects.
 */
export interface DeletePrefixResponse__Output {
  /**
   * The revision of the deletion. If nothing was deleted: a revision at which there was no such object. With
   * validate_only: the revision of the count.
   */
  'revision': (string);
  /**
   * The number of objects that were deleted; with validate_only: that would be.
   */
  'deleted': (string);
  /**
   * As in PutResponse.
   */
  'history_id': (string);
}
