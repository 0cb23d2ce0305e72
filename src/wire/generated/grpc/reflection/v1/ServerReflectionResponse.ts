// Original file: proto/grpc/reflection/v1/reflection.proto

import type { ServerReflectionRequest as _grpc_reflection_v1_ServerReflectionRequest, ServerReflectionRequest__Output as _grpc_reflection_v1_ServerReflectionRequest__Output } from '../../../grpc/reflection/v1/ServerReflectionRequest.ts';
import type { FileDescriptorResponse as _grpc_reflection_v1_FileDescriptorResponse, FileDescriptorResponse__Output as _grpc_reflection_v1_FileDescriptorResponse__Output } from '../../../grpc/reflection/v1/FileDescriptorResponse.ts';
import type { ExtensionNumberResponse as _grpc_reflection_v1_ExtensionNumberResponse, ExtensionNumberResponse__Output as _grpc_reflection_v1_ExtensionNumberResponse__Output } from '../../../grpc/reflection/v1/ExtensionNumberResponse.ts';
import type { ListServiceResponse as _grpc_reflection_v1_ListServiceResponse, ListServiceResponse__Output as _grpc_reflection_v1_ListServiceResponse__Output } from '../../../grpc/reflection/v1/ListServiceResponse.ts';
import type { ErrorResponse as _grpc_reflection_v1_ErrorResponse, ErrorResponse__Output as _grpc_reflection_v1_ErrorResponse__Output } from '../../../grpc/reflection/v1/ErrorResponse.ts';

/**
 * The response to one query.
 */
export interface ServerReflectionResponse {
  /**
   * The host of the request.
   */
  'valid_host'?: (string);
  /**
   * The request.
   */
  'original_request'?: (_grpc_reflection_v1_ServerReflectionRequest | null);
  /**
   * To the queries for a file.
   */
  'file_descriptor_response'?: (_grpc_reflection_v1_FileDescriptorResponse | null);
  /**
   * To the query for extension numbers.
   */
  'all_extension_numbers_response'?: (_grpc_reflection_v1_ExtensionNumberResponse | null);
  /**
   * To the query for services.
   */
  'list_services_response'?: (_grpc_reflection_v1_ListServiceResponse | null);
  /**
   * If the query failed.
   */
  'error_response'?: (_grpc_reflection_v1_ErrorResponse | null);
  /**
   * The response.
   */
  'message_response'?: "file_descriptor_response"|"all_extension_numbers_response"|"list_services_response"|"error_response";
}

/**
 * The response to one query.
 */
export interface ServerReflectionResponse__Output {
  /**
   * The host of the request.
   */
  'valid_host': (string);
  /**
   * The request.
   */
  'original_request': (_grpc_reflection_v1_ServerReflectionRequest__Output | null);
  /**
   * To the queries for a file.
   */
  'file_descriptor_response'?: (_grpc_reflection_v1_FileDescriptorResponse__Output | null);
  /**
   * To the query for extension numbers.
   */
  'all_extension_numbers_response'?: (_grpc_reflection_v1_ExtensionNumberResponse__Output | null);
  /**
   * To the query for services.
   */
  'list_services_response'?: (_grpc_reflection_v1_ListServiceResponse__Output | null);
  /**
   * If the query failed.
   */
  'error_response'?: (_grpc_reflection_v1_ErrorResponse__Output | null);
  /**
   * The response.
   */
  'message_response'?: "file_descriptor_response"|"all_extension_numbers_response"|"list_services_response"|"error_response";
}
