// Original file: proto/watchfanout/v1/write_service.proto

import type { OperationResult as _watchfanout_v1_OperationResult, OperationResult__Output as _watchfanout_v1_OperationResult__Output } from '../../watchfanout/v1/OperationResult.ts';
import type { CompareResult as _watchfanout_v1_CompareResult, CompareResult__Output as _watchfanout_v1_CompareResult__Output } from '../../watchfanout/v1/CompareResult.ts';
import type { Long } from '@grpc/proto-loader';

/**
 * The outcome of a transaction.
 */
export interface TransactResponse {
  /**
   * All compares held, and the operations were applied; with validate_only: they would have been.
   */
  'succeeded'?: (boolean);
  /**
   * The revision of the transaction. If it wrote nothing: a revision at which the compares were as the response says.
   */
  'revision'?: (number | string | Long);
  /**
   * As in PutResponse.
   */
  'history_id'?: (string);
  /**
   * One for each operation, in their order, if the operations were applied.
   */
  'results'?: (_watchfanout_v1_OperationResult)[];
  /**
   * One for each compare, in their order, if one did not hold and return_current was set.
   */
  'compares'?: (_watchfanout_v1_CompareResult)[];
}

/**
 * The outcome of a transaction.
 */
export interface TransactResponse__Output {
  /**
   * All compares held, and the operations were applied; with validate_only: they would have been.
   */
  'succeeded': (boolean);
  /**
   * The revision of the transaction. If it wrote nothing: a revision at which the compares were as the response says.
   */
  'revision': (string);
  /**
   * As in PutResponse.
   */
  'history_id': (string);
  /**
   * One for each operation, in their order, if the operations were applied.
   */
  'results': (_watchfanout_v1_OperationResult__Output)[];
  /**
   * One for each compare, in their order, if one did not hold and return_current was set.
   */
  'compares': (_watchfanout_v1_CompareResult__Output)[];
}
