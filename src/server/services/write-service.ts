import type { WriteResult } from "../../storage/storage.ts";
import { encodeObjectResponse } from "../../wire/encode.ts";
import type { DeleteRequest__Output } from "../../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../../wire/generated/watchfanout/v1/PutRequest.ts";
import type { CallContext, ServedResource } from "../calls/call-context.ts";
import type { ServiceHandlers } from "../calls/methods.ts";
import { type Encode, unary } from "../calls/unary-call.ts";
import { WritesInFlight } from "../calls/writes-in-flight.ts";
import { expectedObjectBytes } from "../limits/expected-sizes.ts";
import {
  accessOfDelete,
  accessOfPut,
  parseDelete,
  parsePut,
  resourceNamed,
} from "./parse-requests.ts";

const service = "watchfanout.v1.WriteService";

/**
 * The handlers of watchfanout.v1.WriteService, by method. A write that was sent to the store always gets a response, so it
 * waits before it is sent while its connection is at its send budget.
 */
export function writeMethods(context: CallContext): ServiceHandlers {
  const inFlight = new WritesInFlight(context);
  return {
    Put: unary<PutRequest__Output>(
      context,
      `${service}/Put`,
      accessOfPut,
      async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const put = { ...parsePut(request), via: call.via, signal: call.signal };
        // The response holds the object of the request.
        const wait = call.admit(call.requestBytes);
        if (wait !== undefined) await wait;
        return written(resource, await inFlight.run(call, () => resource.put(put)));
      },
    ),
    Delete: unary<DeleteRequest__Output>(
      context,
      `${service}/Delete`,
      accessOfDelete,
      async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const wait = call.admit(expectedObjectBytes);
        if (wait !== undefined) await wait;
        const deletion = { ...parseDelete(request), via: call.via, signal: call.signal };
        return written(resource, await inFlight.run(call, () => resource.delete(deletion)));
      },
    ),
  };
}

/** Encodes the response, with the history that the write belongs to, which may no longer be the current one. */
function written(resource: ServedResource, result: WriteResult): Encode {
  const { revision, object, historyId = resource.currentHistoryId } = result;
  return () => encodeObjectResponse(revision, object, historyId);
}
