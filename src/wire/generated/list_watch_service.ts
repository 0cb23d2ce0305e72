import type * as grpc from '@grpc/grpc-js';
import type { EnumTypeDefinition, MessageTypeDefinition } from '@grpc/proto-loader';

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from './google/protobuf/Duration.ts';
import type { EtcdKeys as _watchfanout_v1_EtcdKeys, EtcdKeys__Output as _watchfanout_v1_EtcdKeys__Output } from './watchfanout/v1/EtcdKeys.ts';
import type { Event as _watchfanout_v1_Event, Event__Output as _watchfanout_v1_Event__Output } from './watchfanout/v1/Event.ts';
import type { GetRequest as _watchfanout_v1_GetRequest, GetRequest__Output as _watchfanout_v1_GetRequest__Output } from './watchfanout/v1/GetRequest.ts';
import type { GetResponse as _watchfanout_v1_GetResponse, GetResponse__Output as _watchfanout_v1_GetResponse__Output } from './watchfanout/v1/GetResponse.ts';
import type { HashRange as _watchfanout_v1_HashRange, HashRange__Output as _watchfanout_v1_HashRange__Output } from './watchfanout/v1/HashRange.ts';
import type { ListRequest as _watchfanout_v1_ListRequest, ListRequest__Output as _watchfanout_v1_ListRequest__Output } from './watchfanout/v1/ListRequest.ts';
import type { ListResponse as _watchfanout_v1_ListResponse, ListResponse__Output as _watchfanout_v1_ListResponse__Output } from './watchfanout/v1/ListResponse.ts';
import type { ListWatchServiceClient as _watchfanout_v1_ListWatchServiceClient, ListWatchServiceDefinition as _watchfanout_v1_ListWatchServiceDefinition } from './watchfanout/v1/ListWatchService.ts';
import type { Resource as _watchfanout_v1_Resource, Resource__Output as _watchfanout_v1_Resource__Output } from './watchfanout/v1/Resource.ts';
import type { ResourcesRequest as _watchfanout_v1_ResourcesRequest, ResourcesRequest__Output as _watchfanout_v1_ResourcesRequest__Output } from './watchfanout/v1/ResourcesRequest.ts';
import type { ResourcesResponse as _watchfanout_v1_ResourcesResponse, ResourcesResponse__Output as _watchfanout_v1_ResourcesResponse__Output } from './watchfanout/v1/ResourcesResponse.ts';
import type { Shard as _watchfanout_v1_Shard, Shard__Output as _watchfanout_v1_Shard__Output } from './watchfanout/v1/Shard.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from './watchfanout/v1/StoredObject.ts';
import type { WatchRequest as _watchfanout_v1_WatchRequest, WatchRequest__Output as _watchfanout_v1_WatchRequest__Output } from './watchfanout/v1/WatchRequest.ts';
import type { WatchResponse as _watchfanout_v1_WatchResponse, WatchResponse__Output as _watchfanout_v1_WatchResponse__Output } from './watchfanout/v1/WatchResponse.ts';

type SubtypeConstructor<Constructor extends new (...args: any) => any, Subtype> = {
  new(...args: ConstructorParameters<Constructor>): Subtype;
};

export interface ProtoGrpcType {
  google: {
    protobuf: {
      Duration: MessageTypeDefinition<_google_protobuf_Duration, _google_protobuf_Duration__Output>
    }
  }
  watchfanout: {
    v1: {
      Codec: EnumTypeDefinition
      Delivery: EnumTypeDefinition
      EtcdKeys: MessageTypeDefinition<_watchfanout_v1_EtcdKeys, _watchfanout_v1_EtcdKeys__Output>
      Event: MessageTypeDefinition<_watchfanout_v1_Event, _watchfanout_v1_Event__Output>
      EventType: EnumTypeDefinition
      GetRequest: MessageTypeDefinition<_watchfanout_v1_GetRequest, _watchfanout_v1_GetRequest__Output>
      GetResponse: MessageTypeDefinition<_watchfanout_v1_GetResponse, _watchfanout_v1_GetResponse__Output>
      HashRange: MessageTypeDefinition<_watchfanout_v1_HashRange, _watchfanout_v1_HashRange__Output>
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
      Resource: MessageTypeDefinition<_watchfanout_v1_Resource, _watchfanout_v1_Resource__Output>
      ResourcesRequest: MessageTypeDefinition<_watchfanout_v1_ResourcesRequest, _watchfanout_v1_ResourcesRequest__Output>
      ResourcesResponse: MessageTypeDefinition<_watchfanout_v1_ResourcesResponse, _watchfanout_v1_ResourcesResponse__Output>
      RevisionMatch: EnumTypeDefinition
      Shard: MessageTypeDefinition<_watchfanout_v1_Shard, _watchfanout_v1_Shard__Output>
      StoredObject: MessageTypeDefinition<_watchfanout_v1_StoredObject, _watchfanout_v1_StoredObject__Output>
      View: EnumTypeDefinition
      WatchRequest: MessageTypeDefinition<_watchfanout_v1_WatchRequest, _watchfanout_v1_WatchRequest__Output>
      WatchResponse: MessageTypeDefinition<_watchfanout_v1_WatchResponse, _watchfanout_v1_WatchResponse__Output>
    }
  }
}

