// Original file: proto/grpc/reflection/v1/reflection.proto


/**
 * One service.
 */
export interface ServiceResponse {
  /**
   * The full name.
   */
  'name'?: (string);
}

/**
 * One service.
 */
export interface ServiceResponse__Output {
  /**
   * The full name.
   */
  'name': (string);
}
