// Original file: proto/grpc/reflection/v1alpha/reflection.proto


/**
 * Extension numbers.
 */
export interface ExtensionNumberResponse {
  /**
   * The full name of the extended message type.
   */
  'base_type_name'?: (string);
  /**
   * The numbers.
   */
  'extension_number'?: (number)[];
}

/**
 * Extension numbers.
 */
export interface ExtensionNumberResponse__Output {
  /**
   * The full name of the extended message type.
   */
  'base_type_name': (string);
  /**
   * The numbers.
   */
  'extension_number': (number)[];
}
