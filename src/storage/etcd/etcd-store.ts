import { messageOf, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import { compacted, isServiceError, says } from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { KeyRange } from "../../etcd/client/key-range.ts";
import type { RangeRequest, TxnRequest, TxnResponse } from "../../etcd/client/requests.ts";
import type { DecodedRange } from "../../etcd/wire/range-response.ts";
import { keySize } from "../../model/key-bytes.ts";
import type { StoredObject } from "../../model/object.ts";
import { Slabs } from "../../model/slabs.ts";
import type {
  CompareResult,
  DeletePrefixRequest,
  DeletePrefixResult,
  OperationResult,
  Store,
  TransactRequest,
  TransactResult,
} from "../store.ts";
import {
  checkDeletePrefix,
  checkTransaction,
  defaultMaxDeletedObjects,
  FoundObjects,
  holds,
  resultCompacted,
  tooManyToDelete,
} from "../transaction-checks.ts";
import { CheckedWrites, rangeIn, type Written } from "./checked-writes.ts";
import { EtcdLeases, namesByPrefix } from "./etcd-leases.ts";
import { safeNumber, storedObject } from "./objects/decode.ts";
import { StoreKeys } from "./objects/store-keys.ts";
import { type RequestMarker, RequestMarkers } from "./request-markers.ts";
import { Transaction } from "./transaction.ts";

export interface EtcdStoreOptions {
  /** The prefix in etcd of each resource, by its name. */
  readonly prefixes: ReadonlyMap<string, string>;
  /** Maximum number of objects that one DeletePrefix deletes. Default 10,000. */
  readonly maxDeletedObjects?: number | undefined;
}

/** Resources of one etcd as a Store. The client is not closed with it. */
export class EtcdStore implements Store {
  readonly #client: EtcdClient;
  readonly #keys: StoreKeys;
  readonly #maxDeletedObjects: number;
  readonly #writes: CheckedWrites;
  readonly #markers: RequestMarkers;
  readonly leases: EtcdLeases;

  constructor(client: EtcdClient, options: EtcdStoreOptions) {
    this.#client = client;
    this.#keys = new StoreKeys(options.prefixes, client.history.own);
    this.#maxDeletedObjects = options.maxDeletedObjects ?? defaultMaxDeletedObjects;
    this.#writes = new CheckedWrites(client);
    this.#markers = new RequestMarkers(client);
    const resources = Array.from(options.prefixes, ([name, prefix]) => ({ name, prefix }));
    this.leases = new EtcdLeases(client, namesByPrefix(resources, client.history.own));
  }

  /** Closes the leases. */
  async close(): Promise<void> {
    this.leases.close();
  }

  has(resource: string): boolean {
    return this.#keys.has(resource);
  }

  async transact(request: TransactRequest): Promise<TransactResult> {
    const { operations, validateOnly = false, requestId = "", signal } = request;
    signal?.throwIfAborted();
    checkTransaction(request);
    const transaction = new Transaction(request, this.#keys);
    const transact = async (marker?: RequestMarker): Promise<TransactResult> => {
      const isWritten = (result: TransactResult): boolean =>
        result.succeeded && result.revision > (result.revisionBefore ?? 0);
      return this.#writes.underNewLeases(
        transaction.leaseLengths,
        signal,
        (granted) => this.#transact(transaction, granted, marker),
        isWritten,
      );
    };
    const isMarked = requestId !== "" && !validateOnly && operations.length > 0;
    return abortable(isMarked ? this.#markers.with(request, transact) : transact(), signal);
  }

  async #transact(
    transaction: Transaction,
    granted: readonly bigint[],
    marker: RequestMarker | undefined,
  ): Promise<TransactResult> {
    const { request } = transaction;
    const leases = transaction.leasesOf(granted);
    const branches = {
      compare: transaction.compares(),
      success: transaction.changes(leases),
      failure: transaction.reads(),
    };
    const named = new Set(leases.filter((each) => each !== 0n));
    // etcd does not say which one it does not have.
    const [lease = 0n] = named.size === 1 ? named : [];
    const { response, historyId, executedAt } = await this.#write(request, branches, lease, marker);
    const now = safeNumber(response.header.revision);
    if (executedAt !== undefined) {
      const results = await this.#resultsAt(transaction, executedAt, undefined, request.signal);
      const before = { revision: executedAt, revisionBefore: now };
      return { historyId, succeeded: true, results, compares: [], ...before };
    }
    const unchanged = { historyId, revision: now, revisionBefore: now };
    if (!response.succeeded) {
      const compares = await this.#found(transaction, response, now);
      return { ...unchanged, succeeded: false, results: [], compares };
    }
    const written = transaction.results(response, leases);
    if (marker === undefined && !transaction.hasWritten(response))
      return { ...unchanged, succeeded: true, results: written, compares: [] };
    const isComplete = request.returnPrevious !== true || transaction.readsPrevious;
    const results = isComplete ? written : await this.#withPrevious(transaction, now, written);
    return { ...unchanged, succeeded: true, results, compares: [], revisionBefore: now - 1 };
  }

  async deletePrefix(request: DeletePrefixRequest): Promise<DeletePrefixResult> {
    const { validateOnly = false, requestId = "", signal } = request;
    signal?.throwIfAborted();
    checkDeletePrefix(request);
    const ranges = this.#keys.rangesOf(request);
    const remove = (marker?: RequestMarker) => this.#deletePrefix(request, ranges, marker);
    const isMarked = requestId !== "" && !validateOnly;
    return abortable(isMarked ? this.#markers.with(request, remove) : remove(), signal);
  }

  async #deletePrefix(
    request: DeletePrefixRequest,
    ranges: readonly KeyRange[],
    marker: RequestMarker | undefined,
  ): Promise<DeletePrefixResult> {
    const counts = ranges.map((range) => ({ request_range: { ...range, count_only: true } }));
    const reads = marker === undefined ? counts : [...counts, marker.reading];
    const counting = { compare: [], success: reads, failure: [] };
    const { response: counted, historyId } = await this.#writes.write(counting, 0n, request);
    const found = counted.responses.slice(0, ranges.length);
    const count = sum(found.map(({ response_range }) => response_range?.count));
    const revision = safeNumber(counted.header.revision);
    if (request.validateOnly === true || (count === 0 && marker === undefined))
      return { revision, historyId, deleted: count, revisionBefore: revision };
    // A request that was executed before is answered as it was, however many there are now.
    const isNew = marker?.revisionIn(rangeIn(counted, ranges.length)) === undefined;
    if (isNew && count > this.#maxDeletedObjects)
      throw tooManyToDelete(request, count, this.#maxDeletedObjects);
    const deletions = ranges.map((range) => ({ request_delete_range: range }));
    const branches = { compare: [], success: deletions, failure: [] };
    const written = await this.#write(request, branches, 0n, marker);
    const now = safeNumber(written.response.header.revision);
    const { executedAt } = written;
    if (executedAt !== undefined) {
      const deleted = await this.#countAt(ranges, executedAt, request.signal);
      return { revision: executedAt, historyId, deleted, revisionBefore: now };
    }
    const { responses } = written.response;
    const deleted = sum(
      responses.map(({ response_delete_range }) => response_delete_range?.deleted),
    );
    const revisionBefore = deleted > 0 || marker !== undefined ? now - 1 : now;
    return { revision: now, historyId: written.historyId, deleted, revisionBefore };
  }

  /** Writes with the request's marker. `executedAt`: the request was executed before, at this revision. */
  async #write(
    request: TransactRequest | DeletePrefixRequest,
    { compare, success, failure }: TxnRequest,
    lease: bigint,
    marker: RequestMarker | undefined,
  ): Promise<Written & { readonly executedAt?: number | undefined }> {
    if (marker === undefined)
      return this.#writes.write({ compare, success, failure }, lease, request);
    const written = await this.#writes.write(
      {
        compare: [marker.isAbsent, ...compare],
        success: [...success, marker.writing],
        failure: [...failure, marker.reading],
      },
      lease,
      request,
    );
    const { response } = written;
    return {
      ...written,
      executedAt: response.succeeded
        ? undefined
        : marker.revisionIn(rangeIn(response, failure.length)),
    };
  }

  /** What the compares found at this revision, if that is asked for. Rejects with LIST_TOO_LARGE. */
  async #found(
    transaction: Transaction,
    response: TxnResponse,
    revision: number,
  ): Promise<readonly CompareResult[]> {
    const { compares, returnCurrent = false, signal } = transaction.request;
    if (!returnCurrent) return [];
    const sizes = new FoundObjects();
    const objects = [...transaction.found(response)];
    const results: CompareResult[] = [];
    for (const [i, compare] of compares.entries()) {
      let object = objects[i];
      if (object !== undefined && !transaction.readsValues) {
        const range = { ...transaction.rangeOfCompare(i), revision };
        object = objectIn(compare.key, await this.#compared(range, signal));
      }
      sizes.add(object);
      results.push({ held: holds(compare, object), object });
    }
    return results;
  }

  /** Reads what a compare has found. If that is compacted, REVISION_TOO_OLD would say that the request was applied. */
  async #compared(request: RangeRequest, signal: AbortSignal | undefined): Promise<DecodedRange> {
    try {
      return await this.#client.range(request, signal);
    } catch (error) {
      if (!isCompacted(error)) throw error;
      throw upstreamUnavailable(
        "Nothing was written: a compare does not hold, and what it found was compacted meanwhile. Try again.",
        error,
      );
    }
  }

  /** The results of a transaction that was executed now, and what was before. No error of it says that nothing was written. */
  async #withPrevious(
    transaction: Transaction,
    revision: number,
    written: readonly OperationResult[],
  ): Promise<readonly OperationResult[]> {
    try {
      return await this.#resultsAt(transaction, revision, written, undefined);
    } catch (error) {
      throw new WatchFanoutError(
        "OUTCOME_UNKNOWN",
        `The transaction was applied at revision ${revision}, but what it replaced can't be read: ${messageOf(error)}`,
        { metadata: { revision: String(revision) }, cause: error },
      );
    }
  }

  /** The results of a transaction that was executed at this revision. `written`: without what was before. */
  async #resultsAt(
    transaction: Transaction,
    revision: number,
    written: readonly OperationResult[] | undefined,
    signal: AbortSignal | undefined,
  ): Promise<readonly OperationResult[]> {
    const { operations, returnPrevious = false } = transaction.request;
    const sizes = new FoundObjects();
    const results: OperationResult[] = [];
    const read = async (
      i: number,
      at: number,
      keys_only: boolean = false,
    ): Promise<StoredObject | undefined> => {
      const range = { ...transaction.rangeOfOperation(i), revision: at, keys_only };
      return objectIn(operations[i]?.key ?? "", await this.#range(range, revision, signal));
    };
    for (const [i, { type }] of operations.entries()) {
      const object =
        written === undefined && type === "put" ? await read(i, revision) : written?.[i]?.object;
      // A small request that is repeated would have etcd read 60 large values each time.
      const previous = returnPrevious ? await read(i, revision - 1, sizes.isFull) : undefined;
      results.push(
        sizes.fit(previous)
          ? { object, previous }
          : { object, previous: undefined, previousLeftOut: true },
      );
    }
    return results;
  }

  async #countAt(
    ranges: readonly KeyRange[],
    executedAt: number,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    let count = 0;
    for (const range of ranges) {
      const request = { ...range, count_only: true, revision: executedAt - 1 };
      count += (await this.#range(request, executedAt, signal)).count;
    }
    return count;
  }

  /** Reads what a request has found or left that was executed at this revision. */
  async #range(
    request: RangeRequest,
    executedAt: number,
    signal: AbortSignal | undefined,
  ): Promise<DecodedRange> {
    try {
      return await this.#client.range(request, signal);
    } catch (error) {
      if (!isCompacted(error)) throw error;
      throw resultCompacted(executedAt, error);
    }
  }
}

function isCompacted(error: unknown): boolean {
  return isServiceError(error) && says(error.details, compacted);
}

function objectIn(key: string, { kvs }: DecodedRange): StoredObject | undefined {
  const kv = kvs.at(0);
  return kv && storedObject(key, kv, kv.keyEnd - kv.keyStart - keySize(key), new Slabs(0));
}

/** The sum of counts of etcd. */
function sum(counts: readonly (string | undefined)[]): number {
  return counts.reduce((total, count = "0") => total + safeNumber(count), 0);
}
