// Original file: proto/grpc/reflection/v1alpha/reflection.proto


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
