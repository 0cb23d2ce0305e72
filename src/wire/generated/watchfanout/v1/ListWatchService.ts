// Original file: proto/watchfanout/v1/list_watch_service.proto

import type * as grpc from '@grpc/grpc-js'
import type { MethodDefinition } from '@grpc/proto-loader'
import type { BatchGetRequest as _watchfanout_v1_BatchGetRequest, BatchGetRequest__Output as _watchfanout_v1_BatchGetRequest__Output } from '../../watchfanout/v1/BatchGetRequest.ts';
import type { BatchGetResponse as _watchfanout_v1_BatchGetResponse, BatchGetResponse__Output as _watchfanout_v1_BatchGetResponse__Output } from '../../watchfanout/v1/BatchGetResponse.ts';
import type { GetRequest as _watchfanout_v1_GetRequest, GetRequest__Output as _watchfanout_v1_GetRequest__Output } from '../../watchfanout/v1/GetRequest.ts';
import type { GetResponse as _watchfanout_v1_GetResponse, GetResponse__Output as _watchfanout_v1_GetResponse__Output } from '../../watchfanout/v1/GetResponse.ts';
import type { HistoryRequest as _watchfanout_v1_HistoryRequest, HistoryRequest__Output as _watchfanout_v1_HistoryRequest__Output } from '../../watchfanout/v1/HistoryRequest.ts';
import type { HistoryResponse as _watchfanout_v1_HistoryResponse, HistoryResponse__Output as _watchfanout_v1_HistoryResponse__Output } from '../../watchfanout/v1/HistoryResponse.ts';
import type { ListRequest as _watchfanout_v1_ListRequest, ListRequest__Output as _watchfanout_v1_ListRequest__Output } from '../../watchfanout/v1/ListRequest.ts';
import type { ListResponse as _watchfanout_v1_ListResponse, ListResponse__Output as _watchfanout_v1_ListResponse__Output } from '../../watchfanout/v1/ListResponse.ts';
import type { ResourcesRequest as _watchfanout_v1_ResourcesRequest, ResourcesRequest__Output as _watchfanout_v1_ResourcesRequest__Output } from '../../watchfanout/v1/ResourcesRequest.ts';
import type { ResourcesResponse as _watchfanout_v1_ResourcesResponse, ResourcesResponse__Output as _watchfanout_v1_ResourcesResponse__Output } from '../../watchfanout/v1/ResourcesResponse.ts';
import type { SubscribeRequest as _watchfanout_v1_SubscribeRequest, SubscribeRequest__Output as _watchfanout_v1_SubscribeRequest__Output } from '../../watchfanout/v1/SubscribeRequest.ts';
import type { SubscribeResponse as _watchfanout_v1_SubscribeResponse, SubscribeResponse__Output as _watchfanout_v1_SubscribeResponse__Output } from '../../watchfanout/v1/SubscribeResponse.ts';
import type { WatchRequest as _watchfanout_v1_WatchRequest, WatchRequest__Output as _watchfanout_v1_WatchRequest__Output } from '../../watchfanout/v1/WatchRequest.ts';
import type { WatchResponse as _watchfanout_v1_WatchResponse, WatchResponse__Output as _watchfanout_v1_WatchResponse__Output } from '../../watchfanout/v1/WatchResponse.ts';

/**
 * Reads the objects of a resource, and watches their changes.
 * 
 * A resource is a named collection of objects: one key prefix of the store. Keys are relative to it
 * and ordered by their UTF-8 bytes. Every error has a google.rpc.ErrorInfo of the domain
 * "watchfanout". Clients decide by its reason.
 */
export interface ListWatchServiceClient extends grpc.Client {
  /**
   * Reads several objects, of any resources of one store, all at one revision.
   */
  BatchGet(argument: _watchfanout_v1_BatchGetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _watchfanout_v1_BatchGetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _watchfanout_v1_BatchGetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  BatchGet(argument: _watchfanout_v1_BatchGetRequest, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Reads several objects, of any resources of one store, all at one revision.
   */
  batchGet(argument: _watchfanout_v1_BatchGetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _watchfanout_v1_BatchGetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _watchfanout_v1_BatchGetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  batchGet(argument: _watchfanout_v1_BatchGetRequest, callback: grpc.requestCallback<_watchfanout_v1_BatchGetResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Reads one object.
   */
  Get(argument: _watchfanout_v1_GetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _watchfanout_v1_GetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _watchfanout_v1_GetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  Get(argument: _watchfanout_v1_GetRequest, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Reads one object.
   */
  get(argument: _watchfanout_v1_GetRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _watchfanout_v1_GetRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _watchfanout_v1_GetRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  get(argument: _watchfanout_v1_GetRequest, callback: grpc.requestCallback<_watchfanout_v1_GetResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Reads the changes of one object, the newest first, page by page, as far back as the store has them. Deletions and
   * re-creations are part of it. Needs the right to get the object.
   */
  History(argument: _watchfanout_v1_HistoryRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  History(argument: _watchfanout_v1_HistoryRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  History(argument: _watchfanout_v1_HistoryRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  History(argument: _watchfanout_v1_HistoryRequest, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Reads the changes of one object, the newest first, page by page, as far back as the store has them. Deletions and
   * re-creations are part of it. Needs the right to get the object.
   */
  history(argument: _watchfanout_v1_HistoryRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  history(argument: _watchfanout_v1_HistoryRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  history(argument: _watchfanout_v1_HistoryRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  history(argument: _watchfanout_v1_HistoryRequest, callback: grpc.requestCallback<_watchfanout_v1_HistoryResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Reads the objects of a resource in order, page by page, all pages at one revision.
   */
  List(argument: _watchfanout_v1_ListRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  List(argument: _watchfanout_v1_ListRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  List(argument: _watchfanout_v1_ListRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  List(argument: _watchfanout_v1_ListRequest, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Reads the objects of a resource in order, page by page, all pages at one revision.
   */
  list(argument: _watchfanout_v1_ListRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  list(argument: _watchfanout_v1_ListRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  list(argument: _watchfanout_v1_ListRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  list(argument: _watchfanout_v1_ListRequest, callback: grpc.requestCallback<_watchfanout_v1_ListResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Lists the resources of which the caller may read anything, in the order of their names.
   */
  Resources(argument: _watchfanout_v1_ResourcesRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  Resources(argument: _watchfanout_v1_ResourcesRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  Resources(argument: _watchfanout_v1_ResourcesRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  Resources(argument: _watchfanout_v1_ResourcesRequest, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  /**
   * Lists the resources of which the caller may read anything, in the order of their names.
   */
  resources(argument: _watchfanout_v1_ResourcesRequest, metadata: grpc.Metadata, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  resources(argument: _watchfanout_v1_ResourcesRequest, metadata: grpc.Metadata, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  resources(argument: _watchfanout_v1_ResourcesRequest, options: grpc.CallOptions, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  resources(argument: _watchfanout_v1_ResourcesRequest, callback: grpc.requestCallback<_watchfanout_v1_ResourcesResponse__Output>): grpc.ClientUnaryCall;
  
  /**
   * Serves any number of watches, of any resources, on one stream. The client adds and removes them by ids of
   * its own. Each watch is what a call of Watch would be: it has its own resume point, its own pace and its own
   * end, and none delays another. A client that closes its side keeps the watches that it has.
   */
  Subscribe(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeResponse__Output>;
  Subscribe(options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeResponse__Output>;
  /**
   * Serves any number of watches, of any resources, on one stream. The client adds and removes them by ids of
   * its own. Each watch is what a call of Watch would be: it has its own resume point, its own pace and its own
   * end, and none delays another. A client that closes its side keeps the watches that it has.
   */
  subscribe(metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeResponse__Output>;
  subscribe(options?: grpc.CallOptions): grpc.ClientDuplexStream<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeResponse__Output>;
  
  /**
   * Watches changes: from now on, from a past revision on, or after the current state.
   */
  Watch(argument: _watchfanout_v1_WatchRequest, metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientReadableStream<_watchfanout_v1_WatchResponse__Output>;
  Watch(argument: _watchfanout_v1_WatchRequest, options?: grpc.CallOptions): grpc.ClientReadableStream<_watchfanout_v1_WatchResponse__Output>;
  /**
   * Watches changes: from now on, from a past revision on, or after the current state.
   */
  watch(argument: _watchfanout_v1_WatchRequest, metadata: grpc.Metadata, options?: grpc.CallOptions): grpc.ClientReadableStream<_watchfanout_v1_WatchResponse__Output>;
  watch(argument: _watchfanout_v1_WatchRequest, options?: grpc.CallOptions): grpc.ClientReadableStream<_watchfanout_v1_WatchResponse__Output>;
  
}

/**
 * Reads the objects of a resource, and watches their changes.
 * 
 * A resource is a named collection of objects: one key prefix of the store. Keys are relative to it
 * and ordered by their UTF-8 bytes. Every error has a google.rpc.ErrorInfo of the domain
 * "watchfanout". Clients decide by its reason.
 */
export interface ListWatchServiceHandlers extends grpc.UntypedServiceImplementation {
  /**
   * Reads several objects, of any resources of one store, all at one revision.
   */
  BatchGet: grpc.handleUnaryCall<_watchfanout_v1_BatchGetRequest__Output, _watchfanout_v1_BatchGetResponse>;
  
  /**
   * Reads one object.
   */
  Get: grpc.handleUnaryCall<_watchfanout_v1_GetRequest__Output, _watchfanout_v1_GetResponse>;
  
  /**
   * Reads the changes of one object, the newest first, page by page, as far back as the store has them. Deletions and
   * re-creations are part of it. Needs the right to get the object.
   */
  History: grpc.handleUnaryCall<_watchfanout_v1_HistoryRequest__Output, _watchfanout_v1_HistoryResponse>;
  
  /**
   * Reads the objects of a resource in order, page by page, all pages at one revision.
   */
  List: grpc.handleUnaryCall<_watchfanout_v1_ListRequest__Output, _watchfanout_v1_ListResponse>;
  
  /**
   * Lists the resources of which the caller may read anything, in the order of their names.
   */
  Resources: grpc.handleUnaryCall<_watchfanout_v1_ResourcesRequest__Output, _watchfanout_v1_ResourcesResponse>;
  
  /**
   * Serves any number of watches, of any resources, on one stream. The client adds and removes them by ids of
   * its own. Each watch is what a call of Watch would be: it has its own resume point, its own pace and its own
   * end, and none delays another. A client that closes its side keeps the watches that it has.
   */
  Subscribe: grpc.handleBidiStreamingCall<_watchfanout_v1_SubscribeRequest__Output, _watchfanout_v1_SubscribeResponse>;
  
  /**
   * Watches changes: from now on, from a past revision on, or after the current state.
   */
  Watch: grpc.handleServerStreamingCall<_watchfanout_v1_WatchRequest__Output, _watchfanout_v1_WatchResponse>;
  
}

export interface ListWatchServiceDefinition extends grpc.ServiceDefinition {
  BatchGet: MethodDefinition<_watchfanout_v1_BatchGetRequest, _watchfanout_v1_BatchGetResponse, _watchfanout_v1_BatchGetRequest__Output, _watchfanout_v1_BatchGetResponse__Output>
  Get: MethodDefinition<_watchfanout_v1_GetRequest, _watchfanout_v1_GetResponse, _watchfanout_v1_GetRequest__Output, _watchfanout_v1_GetResponse__Output>
  History: MethodDefinition<_watchfanout_v1_HistoryRequest, _watchfanout_v1_HistoryResponse, _watchfanout_v1_HistoryRequest__Output, _watchfanout_v1_HistoryResponse__Output>
  List: MethodDefinition<_watchfanout_v1_ListRequest, _watchfanout_v1_ListResponse, _watchfanout_v1_ListRequest__Output, _watchfanout_v1_ListResponse__Output>
  Resources: MethodDefinition<_watchfanout_v1_ResourcesRequest, _watchfanout_v1_ResourcesResponse, _watchfanout_v1_ResourcesRequest__Output, _watchfanout_v1_ResourcesResponse__Output>
  Subscribe: MethodDefinition<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeResponse, _watchfanout_v1_SubscribeRequest__Output, _watchfanout_v1_SubscribeResponse__Output>
  Watch: MethodDefinition<_watchfanout_v1_WatchRequest, _watchfanout_v1_WatchResponse, _watchfanout_v1_WatchRequest__Output, _watchfanout_v1_WatchResponse__Output>
}
