// Original file: proto/google/rpc/status.proto

import type { Any as _google_protobuf_Any, Any__Output as _google_protobuf_Any__Output } from '../../google/protobuf/Any.ts';

/**
 * An error. It travels in the trailer grpc-status-details-bin.
 */
export interface Status {
  /**
   * The gRPC status code.
   */
  'code'?: (number);
  /**
   * What is wrong, for people.
   */
  'message'?: (string);
  /**
   * What is wrong, for programs: see error_details.proto.
   */
  'details'?: (_google_protobuf_Any)[];
}

/**
 * An error. It travels in the trailer grpc-status-details-bin.
 */
export interface Status__Output {
  /**
   * The gRPC status code.
   */
  'code': (number);
  /**
   * What is wrong, for people.
   */
  'message': (string);
  /**
   * What is wrong, for programs: see error_details.proto.
   */
  'details': (_google_protobuf_Any__Output)[];
}
