// Original file: proto/watchfanout/v1/lease_service.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { GrantRequest as _watchfanout_v1_GrantRequest, GrantRequest__Output as _watchfanout_v1_GrantRequest__Output } from '../../watchfanout/v1/GrantRequest.ts';
import type { GrantResponse as _watchfanout_v1_GrantResponse, GrantResponse__Output as _watchfanout_v1_GrantResponse__Output } from '../../watchfanout/v1/GrantResponse.ts';
import type { KeepAliveRequest as _watchfanout_v1_KeepAliveRequest, KeepAliveRequest__Output as _watchfanout_v1_KeepAliveRequest__Output } from '../../watchfanout/v1/KeepAliveRequest.ts';
import type { KeepAliveResponse as _watchfanout_v1_KeepAliveResponse, KeepAliveResponse__Output as _watchfanout_v1_KeepAliveResponse__Output } from '../../watchfanout/v1/KeepAliveResponse.ts';
import type { RevokeRequest as _watchfanout_v1_RevokeRequest, RevokeRequest__Output as _watchfanout_v1_RevokeRequest__Output } from '../../watchfanout/v1/RevokeRequest.ts';
import type { RevokeResponse as _watchfanout_v1_RevokeResponse, RevokeResponse__Output as _watchfanout_v1_RevokeResponse__Output } from '../../watchfanout/v1/RevokeResponse.ts';
import type { TimeToLiveRequest as _watchfanout_v1_TimeToLiveRequest, TimeToLiveRequest__Output as _watchfanout_v1_TimeToLiveRequest__Output } from '../../watchfanout/v1/TimeToLiveRequest.ts';
import type { TimeToLiveResponse as _watchfanout_v1_TimeToLiveResponse, TimeToLiveResponse__Output as _watchfanout_v1_TimeToLiveResponse__Output } from '../../watchfanout/v1/TimeToLiveResponse.ts';

/**
 * Leases: objects that are attached to one (PutRequest.lease) are deleted when it ends. A lease ends when it is revoked,
 * or when it was not kept alive for its length, at most a second later.
 * 
 * A lease is of the store, not of the server that granted it: any replica keeps it alive. Ids are random, with up to 63
 * bits; a caller that knows one can use it as far as it has the rights for the attached objects.
 */
export interface LeaseServiceClient extends grpc.Client {
  /**
   * Grants a lease.
   */
  Grant(argument: _watchfanout_v1_GrantRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  Grant(argument: _watchfanout_v1_GrantRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  Grant(argument: _watchfanout_v1_GrantRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  Grant(argument: _watchfanout_v1_GrantRequest, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Grants a lease.
   */
  grant(argument: _watchfanout_v1_GrantRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  grant(argument: _watchfanout_v1_GrantRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  grant(argument: _watchfanout_v1_GrantRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  grant(argument: _watchfanout_v1_GrantRequest, callback: grpc.requestCallback<_watchfanout_v1_GrantResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Keeps any number of leases alive: each request renews the leases that it names, once, and has one response. A lease
   * that no request names any more ends in time, whether or not the stream is open. Needs the right to put all objects
   * that are attached.
   */
  KeepAlive(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveResponse__Output>;
  KeepAlive(options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveResponse__Output>;
  /**
   * Keeps any number of leases alive: each request renews the leases that it names, once, and has one response. A lease
   * that no request names any more ends in time, whether or not the stream is open. Needs the right to put all objects
   * that are attached.
   */
  keepAlive(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveResponse__Output>;
  keepAlive(options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveResponse__Output>;
  
  /**
   * Ends a lease at once, and deletes the attached objects at one revision. Needs the right to delete all of them.
   */
  Revoke(argument: _watchfanout_v1_RevokeRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  Revoke(argument: _watchfanout_v1_RevokeRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  Revoke(argument: _watchfanout_v1_RevokeRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  Revoke(argument: _watchfanout_v1_RevokeRequest, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Ends a lease at once, and deletes the attached objects at one revision. Needs the right to delete all of them.
   */
  revoke(argument: _watchfanout_v1_RevokeRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  revoke(argument: _watchfanout_v1_RevokeRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  revoke(argument: _watchfanout_v1_RevokeRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  revoke(argument: _watchfanout_v1_RevokeRequest, callback: grpc.requestCallback<_watchfanout_v1_RevokeResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Says how long a lease lasts if it is not kept alive, and which objects are attached. Needs the right to get all of
   * them.
   */
  TimeToLive(argument: _watchfanout_v1_TimeToLiveRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  TimeToLive(argument: _watchfanout_v1_TimeToLiveRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  TimeToLive(argument: _watchfanout_v1_TimeToLiveRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  TimeToLive(argument: _watchfanout_v1_TimeToLiveRequest, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Says how long a lease lasts if it is not kept alive, and which objects are attached. Needs the right to get all of
   * them.
   */
  timeToLive(argument: _watchfanout_v1_TimeToLiveRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  timeToLive(argument: _watchfanout_v1_TimeToLiveRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  timeToLive(argument: _watchfanout_v1_TimeToLiveRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  timeToLive(argument: _watchfanout_v1_TimeToLiveRequest, callback: grpc.requestCallback<_watchfanout_v1_TimeToLiveResponse__Output>): grpc.ClientUnaryCall;
  
}

/**
 * Leases: objects that are attached to one (PutRequest.lease) are deleted when it ends. A lease ends when it is revoked,
 * or when it was not kept alive for its length, at most a second later.
 * 
 * A lease is of the store, not of the server that granted it: any replica keeps it alive. Ids are random, with up to 63
 * bits; a caller that knows one can use it as far as it has the rights for the attached objects.
 */
export interface LeaseServiceHandlers extends grpc.UntypedServiceImplementation {
  /**
   * Grants a lease.
   */
  Grant: grpc.handleUnaryCall<_watchfanout_v1_GrantRequest__Output, _watchfanout_v1_GrantResponse>;
  
  /**
   * Keeps any number of leases alive: each request renews the leases that it names, once, and has one response. A lease
   * that no request names any more ends in time, whether or not the stream is open. Needs the right to put all objects
   * that are attached.
   */
  KeepAlive: grpc.handleBidiStreamingCall<_watchfanout_v1_KeepAliveRequest__Output, _watchfanout_v1_KeepAliveResponse>;
  
  /**
   * Ends a lease at once, and deletes the attached objects at one revision. Needs the right to delete all of them.
   */
  Revoke: grpc.handleUnaryCall<_watchfanout_v1_RevokeRequest__Output, _watchfanout_v1_RevokeResponse>;
  
  /**
   * Says how long a lease lasts if it is not kept alive, and which objects are attached. Needs the right to get all of
   * them.
   */
  TimeToLive: grpc.handleUnaryCall<_watchfanout_v1_TimeToLiveRequest__Output, _watchfanout_v1_TimeToLiveResponse>;
  
}

export interface LeaseServiceDefinition extends grpc.ServiceDefinition {
  Grant: MethodDefinition<_watchfanout_v1_GrantRequest, _watchfanout_v1_GrantResponse, _watchfanout_v1_GrantRequest__Output, _watchfanout_v1_GrantResponse__Output>
  KeepAlive: MethodDefinition<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveResponse, _watchfanout_v1_KeepAliveRequest__Output, _watchfanout_v1_KeepAliveResponse__Output>
  Revoke: MethodDefinition<_watchfanout_v1_RevokeRequest, _watchfanout_v1_RevokeResponse, _watchfanout_v1_RevokeRequest__Output, _watchfanout_v1_RevokeResponse__Output>
  TimeToLive: MethodDefinition<_watchfanout_v1_TimeToLiveRequest, _watchfanout_v1_TimeToLiveResponse, _watchfanout_v1_TimeToLiveRequest__Output, _watchfanout_v1_TimeToLiveResponse__Output>
}
