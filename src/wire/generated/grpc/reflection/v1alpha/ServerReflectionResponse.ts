// Original file: proto/grpc/reflection/v1alpha/reflection.proto

import type { ServerReflectionRequest as _grpc_reflection_v1alpha_ServerReflectionRequest, ServerReflectionRequest__Output as _grpc_reflection_v1alpha_ServerReflectionRequest__Output } from '../../../grpc/reflection/v1alpha/ServerReflectionRequest.ts';
import type { FileDescriptorResponse as _grpc_reflection_v1alpha_FileDescriptorResponse, FileDescriptorResponse__Output as _grpc_reflection_v1alpha_FileDescriptorResponse__Output } from '../../../grpc/reflection/v1alpha/FileDescriptorResponse.ts';
import type { ExtensionNumberResponse as _grpc_reflection_v1alpha_ExtensionNumberResponse, ExtensionNumberResponse__Output as _grpc_reflection_v1alpha_ExtensionNumberResponse__Output } from '../../../grpc/reflection/v1alpha/ExtensionNumberResponse.ts';
import type { ListServiceResponse as _grpc_reflection_v1alpha_ListServiceResponse, ListServiceResponse__Output as _grpc_reflection_v1alpha_ListServiceResponse__Output } from '../../../grpc/reflection/v1alpha/ListServiceResponse.ts';
import type { ErrorResponse as _grpc_reflection_v1alpha_ErrorResponse, ErrorResponse__Output as _grpc_reflection_v1alpha_ErrorResponse__Output } from '../../../grpc/reflection/v1alpha/ErrorResponse.ts';

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
  'original_request'?: (_grpc_reflection_v1alpha_ServerReflectionRequest | null);
  /**
   * To the queries for a file.
   */
  'file_descriptor_response'?: (_grpc_reflection_v1alpha_FileDescriptorResponse | null);
  /**
   * To the query for extension numbers.
   */
  'all_extension_numbers_response'?: (_grpc_reflection_v1alpha_ExtensionNumberResponse | null);
  /**
   * To the query for services.
   */
  'list_services_response'?: (_grpc_reflection_v1alpha_ListServiceResponse | null);
  /**
   * If the query failed.
   */
  'error_response'?: (_grpc_reflection_v1alpha_ErrorResponse | null);
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
  'original_request': (_grpc_reflection_v1alpha_ServerReflectionRequest__Output | null);
  /**
   * To the queries for a file.
   */
  'file_descriptor_response'?: (_grpc_reflection_v1alpha_FileDescriptorResponse__Output | null);
  /**
   * To the query for extension numbers.
   */
  'all_extension_numbers_response'?: (_grpc_reflection_v1alpha_ExtensionNumberResponse__Output | null);
  /**
   * To the query for services.
   */
  'list_services_response'?: (_grpc_reflection_v1alpha_ListServiceResponse__Output | null);
  /**
   * If the query failed.
   */
  'error_response'?: (_grpc_reflection_v1alpha_ErrorResponse__Output | null);
  /**
   * The response.
   */
  'message_response'?: "file_descriptor_response"|"all_extension_numbers_response"|"list_services_response"|"error_response";
}
