// Original file: proto/grpc/reflection/v1alpha/reflection.proto


/**
 * Why the query failed.
 */
export interface ErrorResponse {
  /**
   * A gRPC status code.
   */
  'error_code'?: (number);
  /**
   * What is wrong.
   */
  'error_message'?: (string);
}

/**
 * Why the query failed.
 */
export interface ErrorResponse__Output {
  /**
   * A gRPC status code.
   */
  'error_code': (number);
  /**
   * What is wrong.
   */
  'error_message': (string);
}
