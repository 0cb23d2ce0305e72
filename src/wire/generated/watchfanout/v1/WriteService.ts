// Original file: proto/watchfanout/v1/write_service.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { DeleteRequest as _watchfanout_v1_DeleteRequest, DeleteRequest__Output as _watchfanout_v1_DeleteRequest__Output } from '../../watchfanout/v1/DeleteRequest.ts';
import type { DeleteResponse as _watchfanout_v1_DeleteResponse, DeleteResponse__Output as _watchfanout_v1_DeleteResponse__Output } from '../../watchfanout/v1/DeleteResponse.ts';
import type { PutRequest as _watchfanout_v1_PutRequest, PutRequest__Output as _watchfanout_v1_PutRequest__Output } from '../../watchfanout/v1/PutRequest.ts';
import type { PutResponse as _watchfanout_v1_PutResponse, PutResponse__Output as _watchfanout_v1_PutResponse__Output } from '../../watchfanout/v1/PutResponse.ts';

/**
 * Writes single objects. Calls go directly to the store: nothing is buffered or retried. A write whose
 * answer was lost is the error OUTCOME_UNKNOWN.
 */
export interface WriteServiceClient extends grpc.Client {
  /**
   * Deletes an object.
   */
  Delete(argument: _watchfanout_v1_DeleteRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  Delete(argument: _watchfanout_v1_DeleteRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  Delete(argument: _watchfanout_v1_DeleteRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  Delete(argument: _watchfanout_v1_DeleteRequest, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Deletes an object.
   */
  delete(argument: _watchfanout_v1_DeleteRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  delete(argument: _watchfanout_v1_DeleteRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  delete(argument: _watchfanout_v1_DeleteRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  delete(argument: _watchfanout_v1_DeleteRequest, callback: grpc.requestCallback<_watchfanout_v1_DeleteResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Creates or replaces an object.
   */
  Put(argument: _watchfanout_v1_PutRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  Put(argument: _watchfanout_v1_PutRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  Put(argument: _watchfanout_v1_PutRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  Put(argument: _watchfanout_v1_PutRequest, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Creates or replaces an object.
   */
  put(argument: _watchfanout_v1_PutRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  put(argument: _watchfanout_v1_PutRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  put(argument: _watchfanout_v1_PutRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  put(argument: _watchfanout_v1_PutRequest, callback: grpc.requestCallback<_watchfanout_v1_PutResponse__Output>): grpc.ClientUnaryCall;
  
}

/**
 * Writes single objects. Calls go directly to the store: nothing is buffered or retried. A write whose
 * answer was lost is the error OUTCOME_UNKNOWN.
 */
export interface WriteServiceHandlers extends grpc.UntypedServiceImplementation {
  /**
   * Deletes an object.
   */
  Delete: grpc.handleUnaryCall<_watchfanout_v1_DeleteRequest__Output, _watchfanout_v1_DeleteResponse>;
  
  /**
   * Creates or replaces an object.
   */
  Put: grpc.handleUnaryCall<_watchfanout_v1_PutRequest__Output, _watchfanout_v1_PutResponse>;
  
}

export interface WriteServiceDefinition extends grpc.ServiceDefinition {
  Delete: MethodDefinition<_watchfanout_v1_DeleteRequest, _watchfanout_v1_DeleteResponse, _watchfanout_v1_DeleteRequest__Output, _watchfanout_v1_DeleteResponse__Output>
  Put: MethodDefinition<_watchfanout_v1_PutRequest, _watchfanout_v1_PutResponse, _watchfanout_v1_PutRequest__Output, _watchfanout_v1_PutResponse__Output>
}
