// Original file: proto/grpc/reflection/v1/reflection.proto

import type { ExtensionRequest as _grpc_reflection_v1_ExtensionRequest, ExtensionRequest__Output as _grpc_reflection_v1_ExtensionRequest__Output } from '../../../grpc/reflection/v1/ExtensionRequest.ts';

/**
 * One query.
 */
export interface ServerReflectionRequest {
  /**
   * The host that the query is about. Ignored here.
   */
  'host'?: (string);
  /**
   * For the file of this name.
   */
  'file_by_filename'?: (string);
  /**
   * For the file that declares this full name.
   */
  'file_containing_symbol'?: (string);
  /**
   * For the file that declares an extension.
   */
  'file_containing_extension'?: (_grpc_reflection_v1_ExtensionRequest | null);
  /**
   * For the numbers of all extensions of this message type.
   */
  'all_extension_numbers_of_type'?: (string);
  /**
   * For the full names of all services. The content does not matter.
   */
  'list_services'?: (string);
  /**
   * The query.
   */
  'message_request'?: "file_by_filename"|"file_containing_symbol"|"file_containing_extension"|"all_extension_numbers_of_type"|"list_services";
}

/**
 * One query.
 */
export interface ServerReflectionRequest__Output {
  /**
   * The host that the query is about. Ignored here.
   */
  'host': (string);
  /**
   * For the file of this name.
   */
  'file_by_filename'?: (string);
  /**
   * For the file that declares this full name.
   */
  'file_containing_symbol'?: (string);
  /**
   * For the file that declares an extension.
   */
  'file_containing_extension'?: (_grpc_reflection_v1_ExtensionRequest__Output | null);
  /**
   * For the numbers of all extensions of this message type.
   */
  'all_extension_numbers_of_type'?: (string);
  /**
   * For the full names of all services. The content does not matter.
   */
  'list_services'?: (string);
  /**
   * The query.
   */
  'message_request'?: "file_by_filename"|"file_containing_symbol"|"file_containing_extension"|"all_extension_numbers_of_type"|"list_services";
}
