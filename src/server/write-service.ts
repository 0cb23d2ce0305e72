import { encodeObjectResponse } from "../wire/encode.ts";
import type { DeleteRequest__Output } from "../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../wire/generated/watchfanout/v1/PutRequest.ts";
import type { CallContext } from "./calls.ts";
import { expectedObjectBytes } from "./expected-sizes.ts";
import { parseDelete, parsePut, resourceNamed } from "./requests.ts";
import type { Serving } from "./served-methods.ts";
import { unary } from "./unary-call.ts";

const service = "watchfanout.v1.WriteService";

/**
 * How the methods of watchfanout.v1.WriteService are served, by name. A write that has begun is carried out and answered,
 * so it waits before it begins while its connection holds too much.
 */
export function writeMethods(context: CallContext): Serving {
  const { resources } = context;
  return {
    Put: unary<PutRequest__Output>(context, `${service}/Put`, async (request, call) => {
      const resource = resourceNamed(resources, request.resource);
      const put = { ...parsePut(request), signal: call.signal };
      // The answer has in it what the request has.
      const wait = call.admit(call.requestBytes);
      if (wait !== undefined) await wait;
      const { revision, object } = await resource.put(put);
      return () => encodeObjectResponse(revision, object, resource.currentHistoryId);
    }),
    Delete: unary<DeleteRequest__Output>(context, `${service}/Delete`, async (request, call) => {
      const resource = resourceNamed(resources, request.resource);
      const wait = call.admit(expectedObjectBytes);
      if (wait !== undefined) await wait;
      const { revision, object } = await resource.delete({
        ...parseDelete(request),
        signal: call.signal,
      });
      return () => encodeObjectResponse(revision, object, resource.currentHistoryId);
    }),
  };
}
