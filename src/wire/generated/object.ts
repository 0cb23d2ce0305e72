import type * as grpc from '@grpc/grpc-js';
import type { MessageTypeDefinition } from '@grpc/proto-loader';

import type { Attributes as _watchfanout_v1_Attributes, Attributes__Output as _watchfanout_v1_Attributes__Output } from './watchfanout/v1/Attributes.ts';
import type { StoredObject as _watchfanout_v1_StoredObject, StoredObject__Output as _watchfanout_v1_StoredObject__Output } from './watchfanout/v1/StoredObject.ts';

type SubtypeConstructor<Constructor extends new (...args: any) => any, Subtype> = {
  new(...args: ConstructorParameters<Constructor>): Subtype;
};

export interface ProtoGrpcType {
  watchfanout: {
    v1: {
      Attributes: MessageTypeDefinition<_watchfanout_v1_Attributes, _watchfanout_v1_Attributes__Output>
      StoredObject: MessageTypeDefinition<_watchfanout_v1_StoredObject, _watchfanout_v1_StoredObject__Output>
    }
  }
}

