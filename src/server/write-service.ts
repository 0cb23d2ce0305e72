import type { UntypedServiceImplementation } from "@grpc/grpc-js";
import { encodeObjectResponse } from "../wire/encode.ts";
import type { DeleteRequest__Output } from "../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../wire/generated/watchfanout/v1/PutRequest.ts";
import type { CallContext } from "./calls.ts";
import { parseDelete, parsePut, resourceNamed } from "./requests.ts";
import { unaryCall } from "./unary-call.ts";

/** The handlers of watchfanout.v1.WriteService. */
export function writeHandlers(context: CallContext): UntypedServiceImplementation {
  const { resources } = context;
  return {
    Put: unaryCall<PutRequest__Output>(context, async (request, signal) => {
      const resource = resourceNamed(resources, request.resource);
      const { revision, object } = await resource.put({ ...parsePut(request), signal });
      return encodeObjectResponse(revision, object, resource.currentHistoryId);
    }),
    Delete: unaryCall<DeleteRequest__Output>(context, async (request, signal) => {
      const resource = resourceNamed(resources, request.resource);
      const { revision, object } = await resource.delete({ ...parseDelete(request), signal });
      return encodeObjectResponse(revision, object, resource.currentHistoryId);
    }),
  };
}
