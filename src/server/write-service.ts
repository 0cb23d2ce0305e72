import type { WriteResult } from "../storage/storage.ts";
import { encodeObjectResponse } from "../wire/encode.ts";
import type { DeleteRequest__Output } from "../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../wire/generated/watchfanout/v1/PutRequest.ts";
import type { CallContext, ServedResource } from "./calls.ts";
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
      return written(resource, await resource.put({ ...parsePut(request), signal }));
    }),
    Delete: unary<DeleteRequest__Output>(context, `${service}/Delete`, async (request, signal) => {
      const resource = resourceNamed(resources, request.resource);
      return written(resource, await resource.delete({ ...parseDelete(request), signal }));
    }),
  };
}

/** The history is the one in which the write was done, which need no longer be the one that is served. */
function written(resource: ServedResource, result: WriteResult): readonly Uint8Array[] {
  const { revision, object, historyId = resource.currentHistoryId } = result;
  return [encodeObjectResponse(revision, object, historyId)];
}
