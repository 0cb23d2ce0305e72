// Original file: proto/grpc/reflection/v1/reflection.proto


/**
 * Files.
 */
export interface FileDescriptorResponse {
  /**
   * Each a google.protobuf.FileDescriptorProto: the requested file, then all its imports.
   */
  'file_descriptor_proto'?: (Buffer | Uint8Array | string)[];
}

/**
 * Files.
 */
export interface FileDescriptorResponse__Output {
  /**
   * Each a google.protobuf.FileDescriptorProto: the requested file, then all its imports.
   */
  'file_descriptor_proto': (Buffer)[];
}
