import { invalidRequest } from "../../base/errors.ts";
import type { PutRequest, WriteResult } from "../../storage/storage.ts";
import { encodeObjectResponse } from "../../wire/encode.ts";
import type { DeletePrefixRequest__Output } from "../../wire/generated/watchfanout/v1/DeletePrefixRequest.ts";
import type { DeleteRequest__Output } from "../../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../../wire/generated/watchfanout/v1/PutRequest.ts";
import type { TransactRequest__Output } from "../../wire/generated/watchfanout/v1/TransactRequest.ts";
import { expectedObjectBytes } from "../calls/call-admission.ts";
import { attaching } from "../calls/lease-authorizer.ts";
import type { Encode, ServiceMethods, UnaryCall, UnaryMethod } from "../calls/methods.ts";
import type { UnaryContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import {
  accessOfDelete,
  accessOfPut,
  parseDelete,
  parsePut,
  resourceNamed,
} from "./parse-requests.ts";

/**
 * The handlers of watchfanout.v1.WriteService, by method. A write that was sent to the store always gets a response, so it
 * waits before it is sent while its connection is at its send budget, and while the store is processing many.
 */
export function writeMethods(context: UnaryContext): ServiceMethods {
  return {
    Put: {
      kind: "writes",
      access: accessOfPut,
      perform: async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const put = { ...parsePut(request), via: call.via, signal: call.signal };
        const { generation } = context.authorizer;
        const isOtherLease = await namesOtherLease(context, resource, put, call);
        if (isOtherLease) await checkLease(context, put, call);
        // The response holds the object of the request.
        const wait = call.admit(call.requestBytes);
        if (wait !== undefined) await wait;
        // The policy may have changed while it waited.
        const isCurrent = context.authorizer.generation === generation;
        if (isOtherLease && !isCurrent) await checkLease(context, put, call);
        return written(resource, await resource.put(put));
      },
    } satisfies UnaryMethod<PutRequest__Output>,
    Delete: {
      kind: "writes",
      access: accessOfDelete,
      perform: async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const wait = call.admit(expectedObjectBytes);
        if (wait !== undefined) await wait;
        const deletion = { ...parseDelete(request), via: call.via, signal: call.signal };
        return written(resource, await resource.delete(deletion));
      },
    } satisfies UnaryMethod<DeleteRequest__Output>,
    DeletePrefix: {
      kind: "writes",
      access: ({ resource, prefix }) => ({ verb: "delete", resource, scope: { prefix } }),
      perform: async () => Promise.reject(invalidRequest("prefix", "Not yet.")),
    } satisfies UnaryMethod<DeletePrefixRequest__Output>,
    Transact: {
      kind: "writes",
      access: "open",
      perform: async () => Promise.reject(invalidRequest("operations", "Not yet.")),
    } satisfies UnaryMethod<TransactRequest__Output>,
  };
}

/**
 * Whether a put names a lease that the object does not have, as far as that is not allowed to its caller anyway. Such a lease
 * may have keys of others, which end with it, and callers of the etcd API that may not use all of its keys could not use it
 * any more.
 */
async function namesOtherLease(
  context: UnaryContext,
  resource: ServedResource,
  { key, lease = 0n, signal }: PutRequest,
  call: UnaryCall,
): Promise<boolean> {
  if (lease === 0n || !context.leaseAuthorizer.isLimited(call.identity)) return lease !== 0n;
  call.retain(call.requestBytes);
  const get = { key, at: { match: "LINEARIZABLE" }, signal, owner: call.owner } as const;
  const { object } = await resource.get(get);
  return object?.lease !== lease;
}

/** Throws the refusal if the caller may not attach objects to the lease of a put. */
async function checkLease(
  { leaseAuthorizer }: UnaryContext,
  { lease = 0n }: PutRequest,
  call: UnaryCall,
): Promise<void> {
  const refusal = await leaseAuthorizer.refusal(call, lease, attaching);
  if (refusal === undefined) return;
  call.deny();
  throw refusal;
}

/** Encodes the response, with the history that the write belongs to, which may no longer be the current one. */
function written(resource: ServedResource, result: WriteResult): Encode {
  const { revision, object, historyId = resource.currentHistoryId } = result;
  return () => encodeObjectResponse(revision, object, historyId);
}
