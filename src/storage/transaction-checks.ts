import { createHash } from "node:crypto";
import { invalidRequest, WatchFanoutError } from "../base/errors.ts";
import { estimatedBytes, type StoredObject } from "../model/object.ts";
import { checkInteger, checkKey, checkPut, checkText } from "./checks.ts";
import type {
  Compare,
  DeletePrefixRequest,
  ObjectName,
  Operation,
  TransactRequest,
} from "./store.ts";

/*
 * Maximum number of compares and of operations of a transaction. etcd allows 128 unless configured (`--max-txn-ops`). A put
 * counts twice there, and two are for what is checked and remembered of every transaction.
 */
export const maxCompares = 120;
export const maxOperations = 60;

/** Maximum number of objects that one DeletePrefix deletes, unless configured. */
export const defaultMaxDeletedObjects = 10_000;

/** Maximum size of a request's id in UTF-8, in bytes. */
const maxRequestIdBytes = 128;

/** Throws INVALID_REQUEST or TRANSACTION_TOO_LARGE for a transaction that no Store can execute. */
export function checkTransaction({ compares, operations, requestId = "" }: TransactRequest): void {
  if (compares.length === 0 && operations.length === 0) {
    throw invalidRequest(
      "operations",
      "The transaction has no compares and no operations. Give at least one.",
    );
  }
  checkCount("compares", compares.length, maxCompares);
  checkCount("operations", operations.length, maxOperations);
  checkRequestId(requestId);
  for (const compare of compares) checkCompare(compare);
  for (const operation of operations) checkOperation(operation);
}

/** Throws INVALID_REQUEST for a deletion that no Store can execute. */
export function checkDeletePrefix({ prefix, requestId = "" }: DeletePrefixRequest): void {
  checkText("prefix", prefix);
  checkRequestId(requestId);
}

/** Throws INVALID_REQUEST for an id of a request that is too long. */
export function checkRequestId(requestId: string): void {
  const bytes = Buffer.byteLength(requestId);
  if (bytes <= maxRequestIdBytes) return;
  throw invalidRequest(
    "request_id",
    `request_id has ${bytes} bytes, above the limit of ${maxRequestIdBytes}. Use a UUID.`,
  );
}

function checkCount(field: "compares" | "operations", count: number, limit: number): void {
  if (count <= limit) return;
  throw transactionTooLarge(
    `The transaction has ${count} ${field}, above the limit of ${limit}. Divide it.`,
    limit,
  );
}

function checkCompare(compare: Compare): void {
  checkKey(compare.key);
  if ("modRevision" in compare) checkInteger("modRevision", compare.modRevision, 0);
  if ("createRevision" in compare) checkInteger("createRevision", compare.createRevision, 0);
}

function checkOperation(operation: Operation): void {
  if (operation.type === "put") checkPut(operation);
  else checkKey(operation.key);
}

/** `limit` is the number that the request exceeds. */
export function transactionTooLarge(
  message: string,
  limit: number,
  cause?: unknown,
): WatchFanoutError {
  const metadata = { limit: String(limit) };
  return new WatchFanoutError("TRANSACTION_TOO_LARGE", message, { metadata, cause });
}

/** The refusal to delete more objects with one prefix than allowed. */
export function tooManyToDelete(
  { prefix }: DeletePrefixRequest,
  count: number,
  limit: number,
): WatchFanoutError {
  return transactionTooLarge(
    `Nothing was deleted: ${count} objects begin with ${JSON.stringify(prefix)}, above the limit of ${limit} for one ` +
      "DeletePrefix (--max-deleted-objects). Delete them with several longer prefixes.",
    limit,
  );
}

/** The refusal of a key that two operations of a transaction change. `other`: how the first one names it. */
export function changedTwice(name: ObjectName, other: ObjectName): WatchFanoutError {
  const [one, two] = [name, other].map(
    ({ resource, key }) => `${JSON.stringify(key)} of ${JSON.stringify(resource)}`,
  );
  const same = one === two ? "" : `, which is the same key as ${two},`;
  return invalidRequest(
    "operations",
    `${one}${same} comes twice in one transaction: change it once.`,
  );
}

/** The refusal of a name that is not of the store. */
export function otherStore(resource: string, known: Iterable<string>): WatchFanoutError {
  const names = [...known].map((name) => JSON.stringify(name)).join(", ");
  return invalidRequest(
    "resource",
    `The resource ${JSON.stringify(resource)} is not of the same store as: ${names}. A transaction changes resources of one ` +
      "store.",
  );
}

/** The refusal of a request whose id was used for another one. */
export function requestIdReused(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "REQUEST_ID_REUSED",
    `Nothing was written: the request_id was used for another request, which was applied at revision ${revision}. Use a new ` +
      "id for each request.",
    { metadata: { revision: String(revision) } },
  );
}

/** The refusal to repeat the result of a request that was executed: the state of that time is compacted. */
export function resultCompacted(revision: number, cause?: unknown): WatchFanoutError {
  return new WatchFanoutError(
    "REVISION_TOO_OLD",
    `The request was applied before, at revision ${revision}, but what it found and wrote is compacted. Do not repeat it.`,
    { metadata: { requested_revision: String(revision) }, cause },
  );
}

/** Maximum size of the objects that a result has found, in bytes: with the written ones they fit in one response of 4 MiB. */
export const maxFoundBytes = 2.25 * 1024 ** 2;

/** Counts the bytes of the objects that a result has found. */
export class FoundObjects {
  #bytes = 0;

  /** Whether one did not fit: no further one does, so its value need not be read. */
  get isFull(): boolean {
    return this.#bytes > maxFoundBytes;
  }

  /** Whether one more fits, with all before. */
  fit(object: StoredObject | undefined): boolean {
    if (object === undefined) return true;
    this.#bytes += estimatedBytes(object);
    return !this.isFull;
  }

  /** Throws LIST_TOO_LARGE if this one, which a compare found, does not fit. */
  add(object: StoredObject | undefined): void {
    if (this.fit(object)) return;
    throw new WatchFanoutError(
      "LIST_TOO_LARGE",
      `Nothing was written: a compare does not hold, and the current objects are above the limit of ${maxFoundBytes} bytes for ` +
        "one response. Get them one by one.",
      { metadata: { limit: String(maxFoundBytes) } },
    );
  }
}

/** Whether a compare holds for the object that its key has. */
export function holds(compare: Compare, object: StoredObject | undefined): boolean {
  if ("exists" in compare) return compare.exists === (object !== undefined);
  if ("modRevision" in compare) return compare.modRevision === (object?.modRevision ?? 0);
  if ("createRevision" in compare) return compare.createRevision === (object?.createRevision ?? 0);
  return object !== undefined && Buffer.compare(object.value, compare.value) === 0;
}

/** Identifies what a request writes, and on which conditions. */
export function fingerprintOf(request: TransactRequest | DeletePrefixRequest): string {
  const hash = createHash("sha256");
  const add = (part: string | number | Uint8Array | bigint | boolean): void => {
    const bytes = part instanceof Uint8Array ? part : `${typeof part} ${part}`;
    hash.update(`${bytes.length} `);
    hash.update(bytes);
  };
  if ("prefix" in request) {
    for (const part of ["prefix", request.resource, request.prefix]) add(part);
    return hash.digest("base64url");
  }
  for (const compare of request.compares) {
    const { resource, key, ...condition } = compare;
    for (const part of ["if", resource, key, ...Object.entries(condition).flat()]) add(part);
  }
  for (const operation of request.operations) {
    for (const part of [operation.type, operation.resource, operation.key]) add(part);
    if (operation.type === "delete") continue;
    for (const part of [operation.value, operation.lease ?? 0n, operation.ttlSeconds ?? 0])
      add(part);
  }
  return hash.digest("base64url");
}
