import { objectNotFound, revisionConflict } from "../../base/errors.ts";
import { oneStep } from "../../base/event-loop-turns.ts";
import type { StoredObject } from "../../model/object.ts";
import type { DeleteRequest, PutRequest, WriteResult } from "../../storage/storage.ts";
import type {
  Operation,
  PutOperation,
  TransactRequest,
  TransactResult,
} from "../../storage/store.ts";
import { checkTransaction, maxFoundBytes } from "../../storage/transaction-checks.ts";
import { encodeObjectResponse } from "../../wire/encode.ts";
import type { DeletePrefixRequest__Output } from "../../wire/generated/watchfanout/v1/DeletePrefixRequest.ts";
import type { DeleteRequest__Output } from "../../wire/generated/watchfanout/v1/DeleteRequest.ts";
import type { PutRequest__Output } from "../../wire/generated/watchfanout/v1/PutRequest.ts";
import type { TransactRequest__Output } from "../../wire/generated/watchfanout/v1/TransactRequest.ts";
import { objectMessage } from "../../wire/object-message.ts";
import { writeService } from "../../wire/services.ts";
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
import {
  accessOfDeletePrefix,
  accessOfTransact,
  parseDeletePrefix,
  parseTransact,
  writeOptionsOf,
} from "./parse-transact.ts";
import { deletePrefix, transact } from "./store-writes.ts";

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
        const asTransaction = needsStore(context, request)
          ? putAsTransaction(request, put, call)
          : undefined;
        const read = request.return_current ? expectedObjectBytes : 0;
        await admitWithLeases(context, call, read, [{ ...put, resource: request.resource }]);
        if (asTransaction === undefined) return written(resource, await resource.put(put));
        const result = await transact(context, asTransaction);
        return outcomeOf(request, put, result, result.results[0]?.object);
      },
    } satisfies UnaryMethod<PutRequest__Output>,
    Delete: {
      kind: "writes",
      access: accessOfDelete,
      perform: async (request, call) => {
        const resource = resourceNamed(context, call, request.resource);
        const deletion = { ...parseDelete(request), via: call.via, signal: call.signal };
        const asTransaction = needsStore(context, request)
          ? deletionAsTransaction(request, deletion, call)
          : undefined;
        const wait = call.admit(expectedObjectBytes);
        if (wait !== undefined) await wait;
        if (asTransaction === undefined) return written(resource, await resource.delete(deletion));
        const result = await transact(context, asTransaction);
        const [found] = result.compares;
        if (!result.succeeded && found?.object === undefined)
          throw objectNotFound(deletion.key, result.revision);
        return outcomeOf(request, deletion, result, result.results[0]?.previous);
      },
    } satisfies UnaryMethod<DeleteRequest__Output>,
    DeletePrefix: {
      kind: "writes",
      access: accessOfDeletePrefix,
      perform: async (request, call) => {
        resourceNamed(context, call, request.resource);
        const deletion = parseDeletePrefix(request, call);
        const wait = call.admit(call.requestBytes);
        if (wait !== undefined) await wait;
        // The embedded store looks at all of them at once: many calls in a row would hold the event loop.
        const { revision, deleted, historyId } = await call.runInTimeSlices(
          oneStep(() => deletePrefix(context, deletion)),
        );
        return () => [
          writeService.DeletePrefix.responseSerialize({ revision, deleted, history_id: historyId }),
        ];
      },
    } satisfies UnaryMethod<DeletePrefixRequest__Output>,
    Transact: {
      kind: "writes",
      access: accessOfTransact,
      perform: async (request, call) => {
        const transaction = parseTransact(request, call);
        const { operations, compares } = transaction;
        checkTransaction(transaction);
        for (const { resource } of [...operations, ...compares])
          resourceNamed(context, call, resource);
        const current = request.return_current ? compares.length : 0;
        const previous = request.return_previous ? operations.length : 0;
        const read = Math.min((current + previous) * expectedObjectBytes, maxFoundBytes);
        await admitWithLeases(context, call, read, operations.filter(isPut));
        const result = await transact(context, transaction);
        return () => [writeService.Transact.responseSerialize(transactResponse(result))];
      },
    } satisfies UnaryMethod<TransactRequest__Output>,
  };
}

function isPut(operation: Operation): operation is PutOperation {
  return operation.type === "put";
}

/**
 * Whether a Put or Delete asks for what only a Store has. Without one return_current is ignored: a conflict is the error, which
 * clients of servers before it know.
 */
function needsStore(
  { store }: Pick<UnaryContext, "store">,
  request: PutRequest__Output | DeleteRequest__Output,
): boolean {
  if (request.validate_only || request.request_id !== "") return true;
  return request.return_current && store !== undefined;
}

function putAsTransaction(
  request: PutRequest__Output,
  put: PutRequest,
  call: UnaryCall,
): TransactRequest {
  const { key, value, lease, ttlSeconds, expectedModRevision: modRevision } = put;
  const name = { resource: request.resource, key };
  return {
    compares: modRevision === undefined ? [] : [{ ...name, modRevision }],
    operations: [{ type: "put", ...name, value, lease, ttlSeconds }],
    returnCurrent: true,
    ...writeOptionsOf(request, call),
  };
}

function deletionAsTransaction(
  request: DeleteRequest__Output,
  { key, expectedModRevision: modRevision }: DeleteRequest,
  call: UnaryCall,
): TransactRequest {
  const name = { resource: request.resource, key };
  return {
    compares: [modRevision === undefined ? { ...name, exists: true } : { ...name, modRevision }],
    operations: [{ type: "delete", ...name }],
    returnCurrent: true,
    returnPrevious: true,
    ...writeOptionsOf(request, call),
  };
}

/** The response to a Put or Delete that was a transaction. Throws REVISION_CONFLICT. */
function outcomeOf(
  request: PutRequest__Output | DeleteRequest__Output,
  { key, expectedModRevision = 0 }: PutRequest | DeleteRequest,
  { succeeded, revision, historyId, compares }: TransactResult & { readonly historyId: string },
  object: StoredObject | undefined,
): Encode {
  const current = compares[0]?.object;
  if (!succeeded && !request.return_current)
    throw revisionConflict(key, expectedModRevision, current?.modRevision ?? 0);
  const shown = succeeded ? object : current;
  return () => [
    writeService.Put.responseSerialize({
      ...{ revision, history_id: historyId, conflict: !succeeded },
      object: objectMessage(shown),
    }),
  ];
}

function transactResponse(result: TransactResult & { readonly historyId: string }) {
  const { succeeded, revision, historyId, results, compares } = result;
  return {
    ...{ succeeded, revision, history_id: historyId },
    results: results.map(({ object, previous, previousLeftOut = false }) => ({
      previous_left_out: previousLeftOut,
      object: objectMessage(object),
      previous: objectMessage(previous),
    })),
    compares: compares.map(({ held, object }) => ({
      held,
      object: objectMessage(object),
    })),
  };
}

/**
 * Waits for the call's turn. `readBytes`: the expected size of what is read. Throws PERMISSION_DENIED for a lease that its
 * caller may not attach objects to.
 */
async function admitWithLeases(
  context: UnaryContext,
  call: UnaryCall,
  readBytes: number,
  puts: readonly Pick<PutOperation, "resource" | "key" | "lease">[],
): Promise<void> {
  const { authorizer, leaseAuthorizer } = context;
  const { generation } = authorizer;
  const others = new Set<bigint>();
  for (const put of puts) {
    if (await namesOtherLease(context, put, call)) others.add(put.lease ?? 0n);
  }
  for (const lease of others) await leaseAuthorizer.check(call, lease, attaching);
  // The response holds the objects of the request, and what is read.
  const wait = call.admit(call.requestBytes + readBytes);
  if (wait !== undefined) await wait;
  // The policy may have changed while it waited.
  if (authorizer.generation === generation) return;
  for (const lease of others) await leaseAuthorizer.check(call, lease, attaching);
}

/**
 * Whether a put names a lease that the object does not have, as far as that is not allowed to its caller anyway. Such a lease
 * may have keys of others, which end with it, and callers of the etcd API that may not use all of its keys could not use it
 * any more.
 */
async function namesOtherLease(
  context: UnaryContext,
  { resource, key, lease = 0n }: Pick<PutOperation, "resource" | "key" | "lease">,
  call: UnaryCall,
): Promise<boolean> {
  if (lease === 0n || !context.authorizer.isLimited(call.identity)) return lease !== 0n;
  const { signal, owner } = call;
  call.retain(call.requestBytes);
  const get = { key, at: { match: "LINEARIZABLE" }, signal, owner } as const;
  const { object } = await resourceNamed(context, call, resource).get(get);
  return object?.lease !== lease;
}

/** Encodes the response, with the history that the write belongs to, which may no longer be the current one. */
function written(resource: ServedResource, result: WriteResult): Encode {
  const { revision, object, historyId = resource.currentHistoryId } = result;
  return () => encodeObjectResponse(revision, object, historyId);
}
