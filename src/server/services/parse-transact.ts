import { createHash } from "node:crypto";
import { invalidRequest } from "../../base/errors.ts";
import type { Access, Verb } from "../../policy/access.ts";
import type {
  Compare,
  DeletePrefixRequest,
  Operation,
  TransactRequest,
} from "../../storage/store.ts";
import { checkRequestId } from "../../storage/transaction-checks.ts";
import type { Compare__Output } from "../../wire/generated/watchfanout/v1/Compare.ts";
import type { DeletePrefixRequest__Output } from "../../wire/generated/watchfanout/v1/DeletePrefixRequest.ts";
import type { Operation__Output } from "../../wire/generated/watchfanout/v1/Operation.ts";
import type { TransactRequest__Output } from "../../wire/generated/watchfanout/v1/TransactRequest.ts";
import type { Asked, UnaryCall } from "../calls/methods.ts";
import { attachmentOf, keyOf, revisionOf } from "./parse-requests.ts";

/*
 * Converts requests for several objects to those of a Store. An invalid field throws INVALID_REQUEST with the field's name.
 */

/** Those of the operations come first, as they name the request in the audit. */
export function accessOfTransact(request: TransactRequest__Output): Asked | undefined {
  const { operations, compares, return_previous: readsPrevious } = request;
  const all: Access[] = [];
  const add = (verb: Verb, { resource, key }: { resource: string; key: string }): void => {
    all.push({ verb, resource, scope: { key } });
  };
  for (const operation of operations) {
    const { put } = operation;
    add(put ? "put" : "delete", operation);
    // The end of a lease deletes the key.
    if (put && (put.ttl !== null || put.lease !== "0")) add("delete", operation);
    if (readsPrevious) add("get", operation);
  }
  for (const compare of compares) add("get", compare);
  const [first, ...others] = all;
  return first && [first, ...others];
}

export function accessOfDeletePrefix({ resource, prefix }: DeletePrefixRequest__Output): Access {
  return { verb: "delete", resource, scope: { prefix } };
}

/** What of a call is part of its request. */
type Caller = Pick<UnaryCall, "identity" | "via" | "signal" | "isLimited">;

export function parseTransact(request: TransactRequest__Output, call: Caller): TransactRequest {
  return {
    compares: request.compares.map(compareOf),
    operations: request.operations.map(operationOf),
    returnCurrent: request.return_current,
    returnPrevious: request.return_previous,
    ...writeOptionsOf(request, call),
  };
}

export function parseDeletePrefix(
  request: DeletePrefixRequest__Output,
  call: Caller,
): DeletePrefixRequest {
  const { resource, prefix, every_key: isWhole } = request;
  if (prefix === "" && !isWhole) {
    throw invalidRequest(
      "prefix",
      "prefix is empty. Give a prefix, or set every_key to delete every object of the resource.",
    );
  }
  if (prefix !== "" && isWhole) {
    throw invalidRequest(
      "every_key",
      `every_key is set, but prefix is ${JSON.stringify(prefix)}. Give one of them.`,
    );
  }
  return { resource, prefix, ...writeOptionsOf(request, call) };
}

/** What all requests to write have in common. */
export function writeOptionsOf(
  request: Pick<TransactRequest__Output, "validate_only" | "request_id" | "history_id">,
  call: Caller,
): Pick<TransactRequest, "validateOnly" | "requestId" | "historyId" | "via" | "signal"> {
  const { via, signal } = call;
  return {
    validateOnly: request.validate_only,
    requestId: requestIdOf(request.request_id, call),
    historyId: request.history_id,
    ...{ via, signal },
  };
}

/** What `requestIdOf` makes. */
const ofCaller = /^[\w-]{43}\.[\w-]{43}$/;

/**
 * The id of a request among those of all callers, which shows neither: a part for the caller, and one for the id. A relay passes
 * on that of its own caller, so that a request which is repeated at another tier is the same. Of a caller that may not do
 * everything it is taken for its own id: it could use up those of others.
 */
function requestIdOf(id: string, { identity, via, isLimited }: Caller): string {
  const { source, name } = identity;
  if (id === "" || (via !== undefined && ofCaller.test(id) && !isLimited())) return id;
  checkRequestId(id);
  return `${hashOf(JSON.stringify([source, name]))}.${hashOf(id)}`;
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("base64url");
}

function compareOf(compare: Compare__Output, i: number): Compare {
  const name = { resource: compare.resource, key: keyOf(compare.key) };
  switch (compare.condition) {
    case "exists":
      return { ...name, exists: compare.exists ?? false };
    case "mod_revision":
      return { ...name, modRevision: revisionOf("mod_revision", compare.mod_revision ?? "0") };
    case "create_revision":
      return {
        ...name,
        createRevision: revisionOf("create_revision", compare.create_revision ?? "0"),
      };
    case "value":
      return { ...name, value: compare.value ?? Buffer.of() };
  }
  throw invalidRequest(
    "compares",
    `The compare ${i} of ${JSON.stringify(name.key)} has no condition. Give one of exists, mod_revision, ` +
      "create_revision and value.",
  );
}

function operationOf(operation: Operation__Output, i: number): Operation {
  const name = { resource: operation.resource, key: keyOf(operation.key) };
  const { put } = operation;
  if (put) return { type: "put", ...name, value: put.value, ...attachmentOf(put) };
  if (operation.change === "delete") return { type: "delete", ...name };
  throw invalidRequest(
    "operations",
    `The operation ${i} of ${JSON.stringify(name.key)} is neither put nor delete. Give one of them.`,
  );
}
