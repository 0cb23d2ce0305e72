// Original file: proto/watchfanout/v1/write_service.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { DeletePrefixRequest as _watchfanout_v1_DeletePrefixRequest, DeletePrefixRequest__Output as _watchfanout_v1_DeletePrefixRequest__Output } from '../../watchfanout/v1/DeletePrefixRequest.ts';
import type { DeletePrefixResponse as _watchfanout_v1_DeletePrefixResponse, DeletePrefixResponse__Output as _watchfanout_v1_DeletePrefixResponse__Output } from '../../watchfanout/v1/DeletePrefixResponse.ts';
import type { DeleteRequest as _watchfanout_v1_DeleteRequest, DeleteRequest__Output as _watchfanout_v1_DeleteRequest__Output } from '../../watchfanout/v1/DeleteRequest.ts';
import type { DeleteResponse as _watchfanout_v1_DeleteResponse, DeleteResponse__Output as _watchfanout_v1_DeleteResponse__Output } from '../../watchfanout/v1/DeleteResponse.ts';
import type { PutRequest as _watchfanout_v1_PutRequest, PutRequest__Output as _watchfanout_v1_PutRequest__Output } from '../../watchfanout/v1/PutRequest.ts';
import type { PutResponse as _watchfanout_v1_PutResponse, PutResponse__Output as _watchfanout_v1_PutResponse__Output } from '../../watchfanout/v1/PutResponse.ts';
import type { TransactRequest as _watchfanout_v1_TransactRequest, TransactRequest__Output as _watchfanout_v1_TransactRequest__Output } from '../../watchfanout/v1/TransactRequest.ts';
import type { TransactResponse as _watchfanout_v1_TransactResponse, TransactResponse__Output as _watchfanout_v1_TransactResponse__Output } from '../../watchfanout/v1/TransactResponse.ts';

/**
 * Writes objects. Calls go directly to the store: nothing is buffered or retried. A write whose answer was lost
 * is the error OUTCOME_UNKNOWN. A client that repeats it with the same request_id gets the result of the first.
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
   * Deletes all objects whose keys begin with a prefix, at one revision. They are counted first: above the server's maximum,
   * 10,000 unless configured, the call fails with TRANSACTION_TOO_LARGE. What others put after that is deleted as well.
   */
  DeletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  DeletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  DeletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  DeletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Deletes all objects whose keys begin with a prefix, at one revision. They are counted first: above the server's maximum,
   * 10,000 unless configured, the call fails with TRANSACTION_TOO_LARGE. What others put after that is deleted as well.
   */
  deletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  deletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  deletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  deletePrefix(argument: _watchfanout_v1_DeletePrefixRequest, callback: grpc.requestCallback<_watchfanout_v1_DeletePrefixResponse__Output>): grpc.ClientUnaryCall;
  
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
  
  /**
   * Changes several objects, of any resources of one store, at one revision, if all compares hold; otherwise nothing.
   */
  Transact(argument: _watchfanout_v1_TransactRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  Transact(argument: _watchfanout_v1_TransactRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  Transact(argument: _watchfanout_v1_TransactRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  Transact(argument: _watchfanout_v1_TransactRequest, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Changes several objects, of any resources of one store, at one revision, if all compares hold; otherwise nothing.
   */
  transact(argument: _watchfanout_v1_TransactRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  transact(argument: _watchfanout_v1_TransactRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  transact(argument: _watchfanout_v1_TransactRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  transact(argument: _watchfanout_v1_TransactRequest, callback: grpc.requestCallback<_watchfanout_v1_TransactResponse__Output>): grpc.ClientUnaryCall;
  
}

/**
 * Writes objects. Calls go directly to the store: nothing is buffered or retried. A write whose answer was lost
 * is the error OUTCOME_UNKNOWN. A client that repeats it with the same request_id gets the result of the first.
 */
export interface WriteServiceHandlers extends grpc.UntypedServiceImplementation {
  /**
   * Deletes an object.
   */
  Delete: grpc.handleUnaryCall<_watchfanout_v1_DeleteRequest__Output, _watchfanout_v1_DeleteResponse>;
  
  /**
   * Deletes all objects whose keys begin with a prefix, at one revision. They are counted first: above the server's maximum,
   * 10,000 unless configured, the call fails with TRANSACTION_TOO_LARGE. What others put after that is deleted as well.
   */
  DeletePrefix: grpc.handleUnaryCall<_watchfanout_v1_DeletePrefixRequest__Output, _watchfanout_v1_DeletePrefixResponse>;
  
  /**
   * Creates or replaces an object.
   */
  Put: grpc.handleUnaryCall<_watchfanout_v1_PutRequest__Output, _watchfanout_v1_PutResponse>;
  
  /**
   * Changes several objects, of any resources of one store, at one revision, if all compares hold; otherwise nothing.
   */
  Transact: grpc.handleUnaryCall<_watchfanout_v1_TransactRequest__Output, _watchfanout_v1_TransactResponse>;
  
}

export interface WriteServiceDefinition extends grpc.ServiceDefinition {
  Delete: MethodDefinition<_watchfanout_v1_DeleteRequest, _watchfanout_v1_DeleteResponse, _watchfanout_v1_DeleteRequest__Output, _watchfanout_v1_DeleteResponse__Output>
  DeletePrefix: MethodDefinition<_watchfanout_v1_DeletePrefixRequest, _watchfanout_v1_DeletePrefixResponse, _watchfanout_v1_DeletePrefixRequest__Output, _watchfanout_v1_DeletePrefixResponse__Output>
  Put: MethodDefinition<_watchfanout_v1_PutRequest, _watchfanout_v1_PutResponse, _watchfanout_v1_PutRequest__Output, _watchfanout_v1_PutResponse__Output>
  Transact: MethodDefinition<_watchfanout_v1_TransactRequest, _watchfanout_v1_TransactResponse, _watchfanout_v1_TransactRequest__Output, _watchfanout_v1_TransactResponse__Output>
}
