import type * as grpc from '@grpc/grpc-js';
import type { EnumTypeDefinition, MessageTypeDefinition } from '@grpc/proto-loader';

import type { Any as _google_protobuf_Any, Any__Output as _google_protobuf_Any__Output } from './google/protobuf/Any.ts';
import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from './google/protobuf/Duration.ts';
import type { FieldMask as _google_protobuf_FieldMask, FieldMask__Output as _google_protobuf_FieldMask__Output } from './google/protobuf/FieldMask.ts';
import type { Status as _google_rpc_Status, Status__Output as _google_rpc_Status__Output } from './google/rpc/Status.ts';
import type { AddWatch as _watchfanout_v1_AddWatch, AddWatch__Output as _watchfanout_v1_AddWatch__Output } from './watchfanout/v1/AddWatch.ts';
import type { Attributes as _watchfanout_v1_Attributes, Attributes__Output as _watchfanout_v1_Attributes__Output } from './watchfanout/v1/Attributes.ts';
import type { BatchGetRequest as _watchfanout_v1_BatchGetRequest, BatchGetRequest__Output as _watchfanout_v1_BatchGetRequest__Output } from './watchfanout/v1/BatchGetRequest.ts';
import type { BatchGetResponse as _watchfanout_v1_BatchGetResponse, BatchGetResponse__Output as _watchfanout_v1_BatchGetResponse__Output } from './watchfanout/v1/BatchGetResponse.ts';
import type { EtcdKeys as _watchfanout_v1_EtcdKeys, EtcdKeys__Output as _watchfanout_v1_EtcdKeys__Output } from './watchfanout/v1/EtcdKeys.ts';
import type { Event as _watchfanout_v1_Event, Event__Output as _watchfanout_v1_Event__Output } from './watchfanout/v1/Event.ts';
import type { FoundObject as _watchfanout_v1_FoundObject, FoundObject__Output as _watchfanout_v1_FoundObject__Output } from './watchfanout/v1/FoundObject.ts';
import type { GetRequest as _watchfanout_v1_GetRequest, GetRequest__Output as _watchfanout_v1_GetRequest__Output } from './watchfanout/v1/GetRequest.ts';
import type { GetResponse as _watchfanout_v1_GetResponse, GetResponse__Output as _watchfanout_v1_GetResponse__Output } from './watchfanout/v1/GetResponse.ts';
import type { GrantCredit as _watchfanout_v1_GrantCredit, GrantCredit__Output as _watchfanout_v1_GrantCredit__Output } from './watchfanout/v1/GrantCredit.ts';
import type { GrantRequest as _watchfanout_v1_GrantRequest, GrantRequest__Output as _watchfanout_v1_GrantRequest__Output } from './watchfanout/v1/GrantRequest.ts';
import type { GrantResponse as _watchfanout_v1_GrantResponse, GrantResponse__Output as _watchfanout_v1_GrantResponse__Output } from './watchfanout/v1/GrantResponse.ts';
import type { HashRange as _watchfanout_v1_HashRange, HashRange__Output as _watchfanout_v1_HashRange__Output } from './watchfanout/v1/HashRange.ts';
import type { HistoryRequest as _watchfanout_v1_HistoryRequest, HistoryRequest__Output as _watchfanout_v1_HistoryRequest__Output } from './watchfanout/v1/HistoryRequest.ts';
import type { HistoryResponse as _watchfanout_v1_HistoryResponse, HistoryResponse__Output as _watchfanout_v1_HistoryResponse__Output } from './watchfanout/v1/HistoryResponse.ts';
import type { KeepAliveRequest as _watchfanout_v1_KeepAliveRequest, KeepAliveRequest__Output as _watchfanout_v1_KeepAliveRequest__Output } from './watchfanout/v1/KeepAliveRequest.ts';
import type { KeepAliveResponse as _watchfanout_v1_KeepAliveResponse, KeepAliveResponse__Output as _watchfanout_v1_KeepAliveResponse__Output } from './watchfanout/v1/KeepAliveResponse.ts';
import type { KeyRange as _watchfanout_v1_KeyRange, KeyRange__Output as _watchfanout_v1_KeyRange__Output } from './watchfanout/v1/KeyRange.ts';
import type { LeaseServiceClient as _watchfanout_v1_LeaseServiceClient, LeaseServiceDefinition as _watchfanout_v1_LeaseServiceDefinition } from './watchfanout/v1/LeaseService.ts';
import type { ListRequest as _watchfanout_v1_ListRequest, ListRequest__Output as _watchfanout_v1_ListRequest__Output } from './watchfanout/v1/ListRequest.ts';
import type { ListResponse as _watchfanout_v1_ListResponse, ListResponse__Output as _watchfanout_v1_ListResponse__Output } from './watchfanout/v1/ListResponse.ts';
import type { ListWatchServiceClient as _watchfanout_v1_ListWatchServiceClient, ListWatchServiceDefinition as _watchfanout_v1_ListWatchServiceDefinition } from './watchfanout/v1/ListWatchService.ts';
import type { ObjectName as _watchfanout_v1_ObjectName, ObjectName__Output as _watchfanout_v1_ObjectName__Output } from './watchfanout/v1/ObjectName.ts';
import type { Progress as _watchfanout_v1_Progress, Progress__Output as _watchfanout_v1_Progress__Output } from './watchfanout/v1/Progress.ts';
import type { RemoveWatch as _watchfanout_v1_RemoveWatch, RemoveWatch__Output as _watchfanout_v1_RemoveWatch__Output } from './watchfanout/v1/RemoveWatch.ts';
import type { Renewal as _watchfanout_v1_Renewal, Renewal__Output as _watchfanout_v1_Renewal__Output } from './watchfanout/v1/Renewal.ts';
import type { RequestProgress as _watchfanout_v1_RequestProgress, RequestProgress__Output as _watchfanout_v1_RequestProgress__Output } from './watchfanout/v1/RequestProgress.ts';
import type { Resource as _watchfanout_v1_Resource, Resource__Output as _watchfanout_v1_Resource__Output } from './watchfanout/v1/Resource.ts';
import type { ResourcesRequest as _watchfanout_v1_ResourcesRequest, ResourcesRequest__Output as _watchfanout_v1_ResourcesRequest__Output } from './watchfanout/v1/ResourcesRequest.ts';
import type { ResourcesResponse as _watchfanout_v1_ResourcesResponse, ResourcesResponse__Output as _watchfanout_v1_ResourcesResponse__Output } from './watchfanout/v1/ResourcesResponse.ts';
import type { RevokeRequest as _watchfanout_v1_RevokeRequest, RevokeRequest__Output as _watchfanout_v1_RevokeRequest__Output } from './watchfanout/v1/RevokeRequest.ts';
import type { RevokeResponse as _watchfanout_v1_RevokeResponse, RevokeResponse__Output as _watchfanout_v1_RevokeResponse__Output } from './watchfanout/v1/RevokeResponse.ts';
import type { Shard as _watchfanout_v1_Shard, Shard__Output as _watchfanout_v1_Shard__Output } from './watchfanout/v1/Shard.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from './watchfanout/v1/StoredObject.ts';
import type { SubscribeRequest as _watchfanout_v1_SubscribeRequest, SubscribeRequest__Output as _watchfanout_v1_SubscribeRequest__Output } from './watchfanout/v1/SubscribeRequest.ts';
import type { SubscribeResponse as _watchfanout_v1_SubscribeResponse, SubscribeResponse__Output as _watchfanout_v1_SubscribeResponse__Output } from './watchfanout/v1/SubscribeResponse.ts';
import type { TimeToLiveRequest as _watchfanout_v1_TimeToLiveRequest, TimeToLiveRequest__Output as _watchfanout_v1_TimeToLiveRequest__Output } from './watchfanout/v1/TimeToLiveRequest.ts';
import type { TimeToLiveResponse as _watchfanout_v1_TimeToLiveResponse, TimeToLiveResponse__Output as _watchfanout_v1_TimeToLiveResponse__Output } from './watchfanout/v1/TimeToLiveResponse.ts';
import type { WatchRequest as _watchfanout_v1_WatchRequest, WatchRequest__Output as _watchfanout_v1_WatchRequest__Output } from './watchfanout/v1/WatchRequest.ts';
import type { WatchResponse as _watchfanout_v1_WatchResponse, WatchResponse__Output as _watchfanout_v1_WatchResponse__Output } from './watchfanout/v1/WatchResponse.ts';

type SubtypeConstructor<Constructor extends new (...args: any) => any, Subtype> = {
  new(...args: ConstructorParameters<Constructor>): Subtype;
};

export interface ProtoGrpcType {
  google: {
    protobuf: {
      Any: MessageTypeDefinition<_google_protobuf_Any, _google_protobuf_Any__Output>
      Duration: MessageTypeDefinition<_google_protobuf_Duration, _google_protobuf_Duration__Output>
      FieldMask: MessageTypeDefinition<_google_protobuf_FieldMask, _google_protobuf_FieldMask__Output>
    }
    rpc: {
      Status: MessageTypeDefinition<_google_rpc_Status, _google_rpc_Status__Output>
    }
  }
  watchfanout: {
    v1: {
      AddWatch: MessageTypeDefinition<_watchfanout_v1_AddWatch, _watchfanout_v1_AddWatch__Output>
      Attributes: MessageTypeDefinition<_watchfanout_v1_Attributes, _watchfanout_v1_Attributes__Output>
      BatchGetRequest: MessageTypeDefinition<_watchfanout_v1_BatchGetRequest, _watchfanout_v1_BatchGetRequest__Output>
      BatchGetResponse: MessageTypeDefinition<_watchfanout_v1_BatchGetResponse, _watchfanout_v1_BatchGetResponse__Output>
      Codec: EnumTypeDefinition
      Delivery: EnumTypeDefinition
      EtcdKeys: MessageTypeDefinition<_watchfanout_v1_EtcdKeys, _watchfanout_v1_EtcdKeys__Output>
      Event: MessageTypeDefinition<_watchfanout_v1_Event, _watchfanout_v1_Event__Output>
      EventType: EnumTypeDefinition
      FoundObject: MessageTypeDefinition<_watchfanout_v1_FoundObject, _watchfanout_v1_FoundObject__Output>
      GetRequest: MessageTypeDefinition<_watchfanout_v1_GetRequest, _watchfanout_v1_GetRequest__Output>
      GetResponse: MessageTypeDefinition<_watchfanout_v1_GetResponse, _watchfanout_v1_GetResponse__Output>
      GrantCredit: MessageTypeDefinition<_watchfanout_v1_GrantCredit, _watchfanout_v1_GrantCredit__Output>
      GrantRequest: MessageTypeDefinition<_watchfanout_v1_GrantRequest, _watchfanout_v1_GrantRequest__Output>
      GrantResponse: MessageTypeDefinition<_watchfanout_v1_GrantResponse, _watchfanout_v1_GrantResponse__Output>
      HashRange: MessageTypeDefinition<_watchfanout_v1_HashRange, _watchfanout_v1_HashRange__Output>
      HistoryEnd: EnumTypeDefinition
      HistoryRequest: MessageTypeDefinition<_watchfanout_v1_HistoryRequest, _watchfanout_v1_HistoryRequest__Output>
      HistoryResponse: MessageTypeDefinition<_watchfanout_v1_HistoryResponse, _watchfanout_v1_HistoryResponse__Output>
      KeepAliveRequest: MessageTypeDefinition<_watchfanout_v1_KeepAliveRequest, _watchfanout_v1_KeepAliveRequest__Output>
      KeepAliveResponse: MessageTypeDefinition<_watchfanout_v1_KeepAliveResponse, _watchfanout_v1_KeepAliveResponse__Output>
      KeyRange: MessageTypeDefinition<_watchfanout_v1_KeyRange, _watchfanout_v1_KeyRange__Output>
      /**
       * Leases: objects that are attached to one (PutRequest.lease) are deleted when it ends. A lease ends when it is revoked,
       * or when it was not kept alive for its length, at most a second later.
       * 
       * A lease is of the store, not of the server that granted it: any replica keeps it alive. Ids are random, with up to 63
       * bits; a caller that knows one can use it as far as it has the rights for the attached objects.
       */
      LeaseService: SubtypeConstructor<typeof grpc.Client, _watchfanout_v1_LeaseServiceClient> & { service: _watchfanout_v1_LeaseServiceDefinition }
      ListRequest: MessageTypeDefinition<_watchfanout_v1_ListRequest, _watchfanout_v1_ListRequest__Output>
      ListResponse: MessageTypeDefinition<_watchfanout_v1_ListResponse, _watchfanout_v1_ListResponse__Output>
      /**
       * Reads the objects of a resource, and watches their changes.
       * 
       * A resource is a named collection of objects: one key prefix of the store. Keys are relative to it
       * and ordered by their UTF-8 bytes. Every error has a google.rpc.ErrorInfo of the domain
       * "watchfanout". Clients decide by its reason.
       */
      ListWatchService: SubtypeConstructor<typeof grpc.Client, _watchfanout_v1_ListWatchServiceClient> & { service: _watchfanout_v1_ListWatchServiceDefinition }
      ObjectName: MessageTypeDefinition<_watchfanout_v1_ObjectName, _watchfanout_v1_ObjectName__Output>
      Order: EnumTypeDefinition
      Progress: MessageTypeDefinition<_watchfanout_v1_Progress, _watchfanout_v1_Progress__Output>
      RemoveWatch: MessageTypeDefinition<_watchfanout_v1_RemoveWatch, _watchfanout_v1_RemoveWatch__Output>
      Renewal: MessageTypeDefinition<_watchfanout_v1_Renewal, _watchfanout_v1_Renewal__Output>
      RequestProgress: MessageTypeDefinition<_watchfanout_v1_RequestProgress, _watchfanout_v1_RequestProgress__Output>
      Resource: MessageTypeDefinition<_watchfanout_v1_Resource, _watchfanout_v1_Resource__Output>
      ResourcesRequest: MessageTypeDefinition<_watchfanout_v1_ResourcesRequest, _watchfanout_v1_ResourcesRequest__Output>
      ResourcesResponse: MessageTypeDefinition<_watchfanout_v1_ResourcesResponse, _watchfanout_v1_ResourcesResponse__Output>
      RevisionMatch: EnumTypeDefinition
      RevokeRequest: MessageTypeDefinition<_watchfanout_v1_RevokeRequest, _watchfanout_v1_RevokeRequest__Output>
      RevokeResponse: MessageTypeDefinition<_watchfanout_v1_RevokeResponse, _watchfanout_v1_RevokeResponse__Output>
      Shard: MessageTypeDefinition<_watchfanout_v1_Shard, _watchfanout_v1_Shard__Output>
      StoredObject: MessageTypeDefinition<_watchfanout_v1_StoredObject, _watchfanout_v1_StoredObject__Output>
      SubscribeRequest: MessageTypeDefinition<_watchfanout_v1_SubscribeRequest, _watchfanout_v1_SubscribeRequest__Output>
      SubscribeResponse: MessageTypeDefinition<_watchfanout_v1_SubscribeResponse, _watchfanout_v1_SubscribeResponse__Output>
      TimeToLiveRequest: MessageTypeDefinition<_watchfanout_v1_TimeToLiveRequest, _watchfanout_v1_TimeToLiveRequest__Output>
      TimeToLiveResponse: MessageTypeDefinition<_watchfanout_v1_TimeToLiveResponse, _watchfanout_v1_TimeToLiveResponse__Output>
      View: EnumTypeDefinition
      WatchRequest: MessageTypeDefinition<_watchfanout_v1_WatchRequest, _watchfanout_v1_WatchRequest__Output>
      WatchResponse: MessageTypeDefinition<_watchfanout_v1_WatchResponse, _watchfanout_v1_WatchResponse__Output>
    }
  }
}

