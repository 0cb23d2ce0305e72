import type { Reason, WatchFanoutError } from "../../base/errors.ts";
import { randomId } from "../../base/random-id.ts";
import type { DeleteResponse__Output } from "../../wire/generated/watchfanout/v1/DeleteResponse.ts";
import type { PutResponse__Output } from "../../wire/generated/watchfanout/v1/PutResponse.ts";
import { type Method, writeMethods } from "../../wire/methods.ts";
import type { Connection } from "../calls/connection.ts";
import { broken, decodeRevision } from "../calls/decode.ts";
import { wireDuration, wireExpectation } from "../calls/encode.ts";
import type {
  DeleteOptions,
  DeletePrefixOptions,
  PutOptions,
  TransactionOptions,
  ValidateOptions,
  WriteOptions,
} from "../calls/options.ts";
import { repeatedWrite } from "../calls/repeated-write.ts";
import { RevisionConflict } from "../calls/revision-conflict.ts";
import type {
  DeletePrefixResult,
  TransactionRequest,
  TransactionResult,
} from "../calls/transaction.ts";
import type { ObjectResult } from "../watch/client-calls.ts";
import { written } from "../watch/own-writes.ts";
import { decodeObjectResult } from "../watch/response-checks.ts";
import { decodeTransaction, wireTransaction } from "./wire-transaction.ts";

/** The result of a write that was only checked: a revision at which it would have succeeded. */
export type ValidatedWrite = Pick<ObjectResult, "historyId" | "revision">;

/** The writes of a Client. See its methods. */
export class Writes {
  readonly #connection: Connection;

  constructor(connection: Connection) {
    this.#connection = connection;
  }

  put(
    resource: string,
    key: string,
    value: Uint8Array,
    given: PutOptions & ValidateOptions,
  ): Promise<ObjectResult | ValidatedWrite> {
    const options = identified(given);
    const life = { lease: String(options.lease ?? 0n), ttl: wireDuration(options.ttlMs) };
    const request = { resource, key, value, ...life, ...conditional(options) };
    return this.#writeObject(writeMethods.Put, request, options);
  }

  delete(
    resource: string,
    key: string,
    given: DeleteOptions & ValidateOptions,
  ): Promise<ObjectResult | ValidatedWrite> {
    const options = identified(given);
    const request = { resource, key, ...conditional(options) };
    return this.#writeObject(writeMethods.Delete, request, options);
  }

  async #writeObject<Request extends { readonly key: string }, Response extends WriteResponse>(
    method: Method<Request, Response>,
    request: Request,
    options: DeleteOptions & ValidateOptions,
  ): Promise<ObjectResult | ValidatedWrite> {
    const { expectedModRevision, validateOnly } = options;
    const settles = settlesCondition(isNeverAgain(expectedModRevision));
    const response = await this.#send(method, request, options, hasNoConflict, settles);
    return outcome(request.key, expectedModRevision, validateOnly, response);
  }

  async deletePrefix(
    resource: string,
    prefix: string,
    given: DeletePrefixOptions,
  ): Promise<DeletePrefixResult> {
    const options = identified(given);
    const { everyKey = false, validateOnly = false } = options;
    const request = {
      ...{ resource, prefix, every_key: everyKey, validate_only: validateOnly },
      ...{ history_id: options.historyId ?? "", request_id: options.requestId ?? "" },
    };
    const settles = settlesCondition(false);
    const response = await this.#send(
      ...([writeMethods.DeletePrefix, request, options, () => true, settles] as const),
    );
    const result = {
      revision: decodeRevision(response.revision),
      deleted: decodeRevision(response.deleted),
      historyId: response.history_id,
    };
    return validateOnly ? result : written(result);
  }

  async transaction(
    transaction: TransactionRequest,
    given: TransactionOptions,
  ): Promise<TransactionResult> {
    const options = identified(given);
    const request = wireTransaction(transaction, options);
    const settles = settlesCondition(isConflictFinal(transaction));
    const response = await this.#send(
      ...([writeMethods.Transact, request, options, hasSucceeded, settles] as const),
    );
    const result = decodeTransaction(transaction, options, response);
    return result.succeeded && options.validateOnly !== true ? written(result) : result;
  }

  #send<Request, Response>(
    method: Method<Request, Response>,
    request: Request,
    options: WriteOptions,
    succeeded: (response: Response) => boolean,
    settles: (error: WatchFanoutError | undefined) => boolean,
  ): Promise<Response> {
    const connection = this.#connection;
    if (options.retryUnknown !== true) return connection.write(method, request, options);
    return repeatedWrite(
      (onUnknown) => connection.write(method, request, { ...options, onUnknown }),
      succeeded,
      settles,
    );
  }
}

/** Whether the compares of a transaction that do not hold will not hold later either: only a state that is past was expected. */
export function isConflictFinal({ compares = [] }: TransactionRequest): boolean {
  return compares.every(
    (compare) =>
      ("modRevision" in compare && isNeverAgain(compare.modRevision)) ||
      ("createRevision" in compare && isNeverAgain(compare.createRevision)),
  );
}

/** Whether an object that does not have this revision never will. One that exists, at revision 0, can be deleted. */
function isNeverAgain(revision: number | undefined): boolean {
  return revision !== undefined && revision > 0;
}

/** That the request id was used for another request, or that the request was applied, and its result is compacted. */
const aboutTheId: ReadonlySet<Reason> = new Set(["REQUEST_ID_REUSED", "REVISION_TOO_OLD"] as const);
/** That a condition does not hold; with LIST_TOO_LARGE, that the current objects are too large for the answer. */
const aboutTheCondition: ReadonlySet<Reason> = new Set([
  ...(["REVISION_CONFLICT", "OBJECT_NOT_FOUND", "LIST_TOO_LARGE"] as const),
]);

/** What settles a repeated write. `isFinal`: a condition that does not hold will not hold later either. */
function settlesCondition(isFinal: boolean): (error: WatchFanoutError | undefined) => boolean {
  return (error) => {
    if (error === undefined) return isFinal;
    return aboutTheId.has(error.reason) || (isFinal && aboutTheCondition.has(error.reason));
  };
}

/** The options with a request id, if the write may be sent again. */
function identified<T extends WriteOptions>(options: T): T {
  const needsId = options.retryUnknown === true && (options.requestId ?? "") === "";
  return needsId ? { ...options, requestId: randomId() } : options;
}

/** The fields that puts and deletes have. */
function conditional(options: (PutOptions | DeleteOptions) & ValidateOptions) {
  return {
    history_id: options.historyId ?? "",
    ...wireExpectation(options.expectedModRevision),
    return_current: options.returnCurrent ?? false,
    validate_only: options.validateOnly ?? false,
    request_id: options.requestId ?? "",
  };
}

type WriteResponse = Pick<
  PutResponse__Output | DeleteResponse__Output,
  "conflict" | "history_id" | "object" | "revision"
>;

function hasNoConflict({ conflict }: { readonly conflict: boolean }): boolean {
  return !conflict;
}

function hasSucceeded({ succeeded }: { readonly succeeded: boolean }): boolean {
  return succeeded;
}

/** The result of a put or delete. Throws a RevisionConflict if it is one. */
function outcome(
  key: string,
  expected: number | undefined,
  validateOnly: boolean | undefined,
  response: WriteResponse,
): ObjectResult | ValidatedWrite {
  const { conflict, history_id: historyId, object } = response;
  const revision = decodeRevision(response.revision);
  if (conflict) {
    if (expected === undefined) throw broken("a conflict for a write without a condition");
    const current = object === null ? undefined : decodeObjectResult(key, response).object;
    throw new RevisionConflict(key, expected, { current, revision, historyId });
  }
  if (validateOnly !== true) return written(decodeObjectResult(key, response));
  if (object !== null) throw broken("the object of a write that it should only have checked");
  return { revision, historyId };
}
