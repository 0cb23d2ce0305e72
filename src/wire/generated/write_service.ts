import type * as grpc from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from './google/protobuf/Duration.ts';
import type { Attributes as _watchfanout_v1_Attributes, Attributes__Output as _watchfanout_v1_Attributes__Output } from './watchfanout/v1/Attributes.ts';
import type { DeleteRequest as _watchfanout_v1_DeleteRequest, DeleteRequest__Output as _watchfanout_v1_DeleteRequest__Output } from './watchfanout/v1/DeleteRequest.ts';
import type { DeleteResponse as _watchfanout_v1_DeleteResponse, DeleteResponse__Output as _watchfanout_v1_DeleteResponse__Output } from './watchfanout/v1/DeleteResponse.ts';
import type { PutRequest as _watchfanout_v1_PutRequest, PutRequest__Output as _watchfanout_v1_PutRequest__Output } from './watchfanout/v1/PutRequest.ts';
import type { PutResponse as _watchfanout_v1_PutResponse, PutResponse__Output as _watchfanout_v1_PutResponse__Output } from './watchfanout/v1/PutResponse.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from './watchfanout/v1/StoredObject.ts';
import type { WriteServiceClient as _watchfanout_v1_WriteServiceClient, WriteServiceDefinition as _watchfanout_v1_WriteServiceDefinition } from './watchfanout/v1/WriteService.ts';

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
      Attributes: MessageTypeDefinition<_watchfanout_v1_Attributes, _watchfanout_v1_Attributes__Output>
      DeleteRequest: MessageTypeDefinition<_watchfanout_v1_DeleteRequest, _watchfanout_v1_DeleteRequest__Output>
      DeleteResponse: MessageTypeDefinition<_watchfanout_v1_DeleteResponse, _watchfanout_v1_DeleteResponse__Output>
      PutRequest: MessageTypeDefinition<_watchfanout_v1_PutRequest, _watchfanout_v1_PutRequest__Output>
      PutResponse: MessageTypeDefinition<_watchfanout_v1_PutResponse, _watchfanout_v1_PutResponse__Output>
      StoredObject: MessageTypeDefinition<_watchfanout_v1_StoredObject, _watchfanout_v1_StoredObject__Output>
      /**
       * Writes single objects. Calls go directly to the store: nothing is buffered or retried. A write whose
       * answer was lost is the error OUTCOME_UNKNOWN.
       */
      WriteService: SubtypeConstructor<typeof grpc.Client, _watchfanout_v1_WriteServiceClient> & { service: _watchfanout_v1_WriteServiceDefinition }
    }
  }
}

