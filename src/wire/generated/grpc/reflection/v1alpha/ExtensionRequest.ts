// Original file: proto/grpc/reflection/v1alpha/reflection.proto


/**
 * Names an extension.
 */
export interface ExtensionRequest {
  /**
   * The full name of the extended message type.
   */
  'containing_type'?: (string);
  /**
   * The extension's field number.
   */
  'extension_number'?: (number);
}

/**
 * Names an extension.
 */
export interface ExtensionRequest__Output {
  /**
   * The full name of the extended message type.
   */
  'containing_type': (string);
  /**
   * The extension's field number.
   */
  'extension_number': (number);
}
