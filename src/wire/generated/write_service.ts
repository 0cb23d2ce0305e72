import type * as grpc from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';

import type { Duration as _google_protobuf_Duration, Duration__Output as _google_protobuf_Duration__Output } from './google/protobuf/Duration.ts';
import type { Attributes as _watchfanout_v1_Attributes, Attributes__Output as _watchfanout_v1_Attributes__Output } from './watchfanout/v1/Attributes.ts';
import type { Compare as _watchfanout_v1_Compare, Compare__Output as _watchfanout_v1_Compare__Output } from './watchfanout/v1/Compare.ts';
import type { CompareResult as _watchfanout_v1_CompareResult, CompareResult__Output as _watchfanout_v1_CompareResult__Output } from './watchfanout/v1/CompareResult.ts';
import type { DeleteOperation as _watchfanout_v1_DeleteOperation, DeleteOperation__Output as _watchfanout_v1_DeleteOperation__Output } from './watchfanout/v1/DeleteOperation.ts';
import type { DeletePrefixRequest as _watchfanout_v1_DeletePrefixRequest, DeletePrefixRequest__Output as _watchfanout_v1_DeletePrefixRequest__Output } from './watchfanout/v1/DeletePrefixRequest.ts';
import type { DeletePrefixResponse as _watchfanout_v1_DeletePrefixResponse, DeletePrefixResponse__Output as _watchfanout_v1_DeletePrefixResponse__Output } from './watchfanout/v1/DeletePrefixResponse.ts';
import type { DeleteRequest as _watchfanout_v1_DeleteRequest, DeleteRequest__Output as _watchfanout_v1_DeleteRequest__Output } from './watchfanout/v1/DeleteRequest.ts';
import type { DeleteResponse as _watchfanout_v1_DeleteResponse, DeleteResponse__Output as _watchfanout_v1_DeleteResponse__Output } from './watchfanout/v1/DeleteResponse.ts';
import type { Operation as _watchfanout_v1_Operation, Operation__Output as _watchfanout_v1_Operation__Output } from './watchfanout/v1/Operation.ts';
import type { OperationResult as _watchfanout_v1_OperationResult, OperationResult__Output as _watchfanout_v1_OperationResult__Output } from './watchfanout/v1/OperationResult.ts';
import type { PutOperation as _watchfanout_v1_PutOperation, PutOperation__Output as _watchfanout_v1_PutOperation__Output } from './watchfanout/v1/PutOperation.ts';
import type { PutRequest as _watchfanout_v1_PutRequest, PutRequest__Output as _watchfanout_v1_PutRequest__Output } from './watchfanout/v1/PutRequest.ts';
import type { PutResponse as _watchfanout_v1_PutResponse, PutResponse__Output as _watchfanout_v1_PutResponse__Output } from './watchfanout/v1/PutResponse.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from './watchfanout/v1/StoredObject.ts';
import type { TransactRequest as _watchfanout_v1_TransactRequest, TransactRequest__Output as _watchfanout_v1_TransactRequest__Output } from './watchfanout/v1/TransactRequest.ts';
import type { TransactResponse as _watchfanout_v1_TransactResponse, TransactResponse__Output as _watchfanout_v1_TransactResponse__Output } from './watchfanout/v1/TransactResponse.ts';
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
      Compare: MessageTypeDefinition<_watchfanout_v1_Compare, _watchfanout_v1_Compare__Output>
      CompareResult: MessageTypeDefinition<_watchfanout_v1_CompareResult, _watchfanout_v1_CompareResult__Output>
      DeleteOperation: MessageTypeDefinition<_watchfanout_v1_DeleteOperation, _watchfanout_v1_DeleteOperation__Output>
      DeletePrefixRequest: MessageTypeDefinition<_watchfanout_v1_DeletePrefixRequest, _watchfanout_v1_DeletePrefixRequest__Output>
      DeletePrefixResponse: MessageTypeDefinition<_watchfanout_v1_DeletePrefixResponse, _watchfanout_v1_DeletePrefixResponse__Output>
      DeleteRequest: MessageTypeDefinition<_watchfanout_v1_DeleteRequest, _watchfanout_v1_DeleteRequest__Output>
      DeleteResponse: MessageTypeDefinition<_watchfanout_v1_DeleteResponse, _watchfanout_v1_DeleteResponse__Output>
      Operation: MessageTypeDefinition<_watchfanout_v1_Operation, _watchfanout_v1_Operation__Output>
      OperationResult: MessageTypeDefinition<_watchfanout_v1_OperationResult, _watchfanout_v1_OperationResult__Output>
      PutOperation: MessageTypeDefinition<_watchfanout_v1_PutOperation, _watchfanout_v1_PutOperation__Output>
      PutRequest: MessageTypeDefinition<_watchfanout_v1_PutRequest, _watchfanout_v1_PutRequest__Output>
      PutResponse: MessageTypeDefinition<_watchfanout_v1_PutResponse, _watchfanout_v1_PutResponse__Output>
      StoredObject: MessageTypeDefinition<_watchfanout_v1_StoredObject, _watchfanout_v1_StoredObject__Output>
      TransactRequest: MessageTypeDefinition<_watchfanout_v1_TransactRequest, _watchfanout_v1_TransactRequest__Output>
      TransactResponse: MessageTypeDefinition<_watchfanout_v1_TransactResponse, _watchfanout_v1_TransactResponse__Output>
      /**
       * Writes objects. Calls go directly to the store: nothing is buffered or retried. A write whose answer was lost
       * is the error OUTCOME_UNKNOWN. A client that repeats it with the same request_id gets the result of the first.
       */
      WriteService: SubtypeConstructor<typeof grpc.Client, _watchfanout_v1_WriteServiceClient> & { service: _watchfanout_v1_WriteServiceDefinition }
    }
  }
}

