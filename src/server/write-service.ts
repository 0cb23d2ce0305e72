import { encodeObjectResponse } from "../wire/encode.ts";
import type { DeleteRequest__Output } from "../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../wire/generated/watchfanout/v1/PutRequest.ts";
import type { CallContext } from "./calls.ts";
import { parseDelete, parsePut, resourceNamed } from "./requests.ts";
import type { Serving } from "./served-methods.ts";
import { unary } from "./unary-call.ts";

const service = "watchfanout.v1.WriteService";

/** How the methods of watchfanout.v1.WriteService are served, by name. */
export function writeMethods(context: CallContext): Serving {
  const { resources } = context;
  return {
    Put: unary<PutRequest__Output>(context, `${service}/Put`, async (request, signal) => {
      const resource = resourceNamed(resources, request.resource);
      const { revision, object } = await resource.put({ ...parsePut(request), signal });
      return [encodeObjectResponse(revision, object, resource.currentHistoryId)];
    }),
    Delete: unary<DeleteRequest__Output>(context, `${service}/Delete`, async (request, signal) => {
      const resource = resourceNamed(resources, request.resource);
      const { revision, object } = await resource.delete({ ...parseDelete(request), signal });
      return [encodeObjectResponse(revision, object, resource.currentHistoryId)];
    }),
  };
}
