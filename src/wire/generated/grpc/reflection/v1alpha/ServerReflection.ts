// Original file: proto/grpc/reflection/v1alpha/reflection.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { ServerReflectionRequest as _grpc_reflection_v1alpha_ServerReflectionRequest, ServerReflectionRequest__Output as _grpc_reflection_v1alpha_ServerReflectionRequest__Output } from '../../../grpc/reflection/v1alpha/ServerReflectionRequest.ts';
import type { ServerReflectionResponse as _grpc_reflection_v1alpha_ServerReflectionResponse, ServerReflectionResponse__Output as _grpc_reflection_v1alpha_ServerReflectionResponse__Output } from '../../../grpc/reflection/v1alpha/ServerReflectionResponse.ts';

/**
 * Returns the protobuf descriptors of this server's services.
 */
export interface ServerReflectionClient extends grpc.Client {
  /**
   * Answers every request with one response, in order.
   */
  ServerReflectionInfo(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_grpc_reflection_v1alpha_ServerReflectionRequest, _grpc_reflection_v1alpha_ServerReflectionResponse__Output>;
  ServerReflectionInfo(options?: grpc.CallOptions): grpc.ClientDuplexStream<_grpc_reflection_v1alpha_ServerReflectionRequest, _grpc_reflection_v1alpha_ServerReflectionResponse__Output>;
  /**
   * Answers every request with one response, in order.
   */
  serverReflectionInfo(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_grpc_reflection_v1alpha_ServerReflectionRequest, _grpc_reflection_v1alpha_ServerReflectionResponse__Output>;
  serverReflectionInfo(options?: grpc.CallOptions): grpc.ClientDuplexStream<_grpc_reflection_v1alpha_ServerReflectionRequest, _grpc_reflection_v1alpha_ServerReflectionResponse__Output>;
  
}

/**
 * Returns the protobuf descriptors of this server's services.
 */
export interface ServerReflectionHandlers extends grpc.UntypedServiceImplementation {
  /**
   * Answers every request with one response, in order.
   */
  ServerReflectionInfo: grpc.handleBidiStreamingCall<_grpc_reflection_v1alpha_ServerReflectionRequest__Output, _grpc_reflection_v1alpha_ServerReflectionResponse>;
  
}

export interface ServerReflectionDefinition extends grpc.ServiceDefinition {
  ServerReflectionInfo: MethodDefinition<_grpc_reflection_v1alpha_ServerReflectionRequest, _grpc_reflection_v1alpha_ServerReflectionResponse, _grpc_reflection_v1alpha_ServerReflectionRequest__Output, _grpc_reflection_v1alpha_ServerReflectionResponse__Output>
}
