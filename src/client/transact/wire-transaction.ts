import { invalidRequest } from "../../base/errors.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import type { RevisionRequirement } from "../../storage/storage.ts";
import type { BatchGetResponse__Output } from "../../wire/generated/watchfanout/v1/BatchGetResponse.ts";
import type { Compare as WireCompare } from "../../wire/generated/watchfanout/v1/Compare.ts";
import type { Operation as WireOperation } from "../../wire/generated/watchfanout/v1/Operation.ts";
import type { StoredObject__Output } from "../../wire/generated/watchfanout/v1/StoredObject.ts";
import type { TransactRequest } from "../../wire/generated/watchfanout/v1/TransactRequest.ts";
import type { TransactResponse__Output } from "../../wire/generated/watchfanout/v1/TransactResponse.ts";
import { broken, decodeDuration, decodeObject, decodeRevision } from "../calls/decode.ts";
import { wireDuration } from "../calls/encode.ts";
import type { TransactionOptions } from "../calls/options.ts";
import type {
  BatchGetResult,
  Compare,
  ObjectName,
  Operation,
  TransactionRequest,
  TransactionResult,
} from "../calls/transaction.ts";
import { checkObject, checkReadAt } from "../watch/response-checks.ts";

/** Encodes a transaction. Throws INVALID_REQUEST for a compare without a condition. */
export function wireTransaction(
  { compares = [], operations = [] }: TransactionRequest,
  options: TransactionOptions,
): TransactRequest {
  return {
    compares: compares.map(wireCompare),
    operations: operations.map(wireOperation),
    return_current: options.returnCurrent ?? false,
    return_previous: options.returnPrevious ?? false,
    validate_only: options.validateOnly ?? false,
    request_id: options.requestId ?? "",
    history_id: options.historyId ?? "",
  };
}

function wireCompare(compare: Compare): WireCompare {
  const { resource, key } = compare;
  const name = { resource, key };
  if ("exists" in compare) return { ...name, exists: compare.exists };
  if ("modRevision" in compare) return { ...name, mod_revision: compare.modRevision };
  if ("createRevision" in compare) return { ...name, create_revision: compare.createRevision };
  if ("value" in compare) return { ...name, value: compare.value };
  const message = `The compare of ${JSON.stringify(key)} has no condition: give it exists, modRevision, createRevision or value.`;
  throw invalidRequest("compares", message);
}

function wireOperation(operation: Operation): WireOperation {
  const { resource, key } = operation;
  if (operation.type === "delete") return { resource, key, delete: {} };
  const { value, lease = 0n, ttlMs } = operation;
  return { resource, key, put: { value, lease: String(lease), ttl: wireDuration(ttlMs) } };
}

/** Decodes the outcome of a transaction. Throws INTERNAL if it does not fit the request. */
export function decodeTransaction(
  { compares = [], operations = [] }: TransactionRequest,
  { returnCurrent = false, validateOnly = false }: TransactionOptions,
  response: TransactResponse__Output,
): TransactionResult {
  const { succeeded, history_id: historyId } = response;
  const revision = decodeRevision(response.revision);
  const hasResults = succeeded && !validateOnly;
  checkCount("results", response.results.length, hasResults ? operations.length : 0);
  checkCount(
    "compares",
    response.compares.length,
    succeeded || !returnCurrent ? 0 : compares.length,
  );
  const results = response.results.map((result, n) => {
    const { key, type } = operations[n] as Operation;
    const object = found(key, result.object, revision);
    if ((object === undefined) !== (type === "delete")) throw broken(`another result of a ${type}`);
    const previous = found(key, result.previous, revision);
    return { object, previous, previousLeftOut: result.previous_left_out };
  });
  const compared = response.compares.map(({ held, object }, n) => {
    return { held, object: found((compares[n] as Compare).key, object, revision) };
  });
  return { succeeded, revision, historyId, results, compares: compared };
}

/** Decodes the objects of `names`. Throws INTERNAL if they are not what was asked for. */
export function decodeBatchGet(
  names: readonly ObjectName[],
  at: RevisionRequirement | undefined,
  response: BatchGetResponse__Output,
): BatchGetResult {
  const revision = decodeRevision(response.revision);
  checkReadAt(at, revision);
  checkCount("objects", response.objects.length, names.length);
  const objects = response.objects.map(({ object }, n) => {
    return found((names[n] as ObjectName).key, object, revision);
  });
  const staleForMs = decodeDuration(response.stale_for);
  return { revision, objects, historyId: response.history_id, staleForMs };
}

/** The object `key` of a response at `revision`; undefined: it does not exist. */
function found(
  key: string,
  wire: StoredObject__Output | null,
  revision: number,
): StoredObject | undefined {
  if (wire === null) return undefined;
  const object = decodeObject(wire, new Slabs(0));
  checkObject(key, object, revision);
  return object;
}

function checkCount(what: string, sent: number, expected: number): void {
  if (sent !== expected) throw broken(`${sent} ${what} in place of ${expected}`);
}
