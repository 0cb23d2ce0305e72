import type { IKeyValue } from "etcd3";
import {
  hasReason,
  objectNotFound,
  otherHistory,
  revisionConflict,
  WatchFanoutError,
} from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { Compare, RequestOp, TxnRequest, TxnResponse } from "../../etcd/client/requests.ts";
import { StoredObject } from "../../model/object.ts";
import type { DeleteRequest, PutRequest, WriteResult } from "../storage.ts";
import { loadedObject, safeNumber } from "./objects/decode.ts";

/** What a write expects. */
interface Expectation {
  readonly expectedModRevision?: number | undefined;
  readonly historyId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** etcd's response, and the id of its history at that time; empty if it can't be read. */
interface Written {
  readonly response: TxnResponse;
  readonly historyId: string;
}

/**
 * Writes to etcd. Each write is one transaction that checks the expectations and writes, or does neither.
 *
 * When a caller aborts a write, its call rejects at once. A write that was sent continues to its outcome, which decides
 * what happens to its lease.
 */
export class Writer {
  readonly #client: EtcdClient;

  constructor(client: EtcdClient) {
    this.#client = client;
  }

  /** `key` is absolute. The request is valid. */
  put(key: Buffer, request: PutRequest): Promise<WriteResult> {
    const { ttlSeconds, lease = 0n, signal } = request;
    return abortable(
      ttlSeconds === undefined
        ? this.#putUnder(lease, key, request)
        : this.#putUnderNew(ttlSeconds, key, request),
      signal,
    );
  }

  /** `key` is absolute. The request is valid. */
  delete(key: Buffer, request: DeleteRequest): Promise<WriteResult> {
    return abortable(this.#delete(key, request), request.signal);
  }

  async #delete(key: Buffer, request: DeleteRequest): Promise<WriteResult> {
    const deletion = { request_delete_range: { key, prev_kv: true } };
    const { response, historyId } = await this.#write(key, [deletion], request, 0n);
    const revision = safeNumber(response.header.revision);
    const [deleted] = response.responses[0]?.response_delete_range?.prev_kvs ?? [];
    if (deleted !== undefined) {
      return { revision, object: loadedObject(request.key, deleted), historyId };
    }
    const state = response.succeeded ? undefined : rangeIn(response, 0);
    if (state === undefined) throw objectNotFound(request.key, revision);
    throw conflict(request, state);
  }

  /** Puts with a new lease, which is revoked if nothing was written, also after the caller has aborted. */
  async #putUnderNew(ttlSeconds: number, key: Buffer, request: PutRequest): Promise<WriteResult> {
    const granted = await this.#client.grantLease(ttlSeconds);
    try {
      return await this.#putUnder(granted, key, request);
    } catch (error) {
      // If the object may exist, the lease stays: both go when it expires.
      if (isUndone(error, request.signal)) await this.#revoke(granted);
      throw error;
    }
  }

  async #putUnder(lease: bigint, key: Buffer, request: PutRequest): Promise<WriteResult> {
    const { buffer, byteOffset, byteLength } = request.value;
    const value = Buffer.from(buffer, byteOffset, byteLength);
    const { response, historyId } = await this.#write(
      key,
      [
        { request_put: { key, value, lease: String(lease) } },
        // Reads the version and the create revision, which a put does not return.
        stateOf(key),
      ],
      request,
      lease,
    );
    if (!response.succeeded) throw conflict(request, rangeIn(response, 0));
    const state = rangeIn(response, 1);
    if (state === undefined) throw new Error("etcd does not have what it has just been given.");
    const { createRevision, modRevision, version } = loadedObject(request.key, state);
    return {
      revision: safeNumber(response.header.revision),
      object: new StoredObject(
        request.key,
        request.value,
        createRevision,
        modRevision,
        version,
        lease,
      ),
      historyId,
    };
  }

  /** Resolves also if the object is not as expected. Rejects with HISTORY_CHANGED. */
  async #write(
    key: Buffer,
    success: RequestOp[],
    expectation: Expectation,
    lease: bigint,
  ): Promise<Written> {
    const { expectedModRevision, historyId = "", signal } = expectation;
    const compare = modRevisionIs(key, expectedModRevision);
    const failure = [stateOf(key)];
    if (historyId === "") return this.#writeNaming({ compare, success, failure }, lease, signal);
    const { history } = this.#client;
    if (!history.mayBe(historyId)) throw otherHistory(historyId, await history.read(signal));
    const response = await this.#writeIfKnown(
      historyId,
      {
        compare: [history.isStill(historyId), ...compare],
        success,
        failure: [...failure, history.reading],
      },
      lease,
      signal,
    );
    if (response.succeeded || isStill(historyId, rangeIn(response, 1)))
      return { response, historyId };
    throw otherHistory(historyId, await history.read(signal));
  }

  /** Reads the history's id in the same transaction, if this user may read it. */
  async #writeNaming(
    request: TxnRequest,
    lease: bigint,
    signal: AbortSignal | undefined,
  ): Promise<Written> {
    const { history } = this.#client;
    const { compare, success, failure } = request;
    if (history.isReadable) {
      try {
        const naming = {
          compare,
          success: [...success, history.reading],
          failure: [...failure, history.reading],
        };
        const response = await this.#client.write(naming, lease, signal);
        const marker = rangeIn(response, response.responses.length - 1);
        return { response, historyId: history.idFrom(marker) };
      } catch (error) {
        // Then nothing was written, and etcd may have refused the transaction because of that key alone.
        if (!hasReason(error, "UPSTREAM_DENIED") || (await history.read(signal)) !== "")
          throw error;
      }
    }
    return { response: await this.#client.write(request, lease, signal), historyId: "" };
  }

  /**
   * etcd refuses the whole transaction to a user that may not read the history's id. Then the history can't be
   * verified, so it counts as another one.
   */
  async #writeIfKnown(
    historyId: string,
    request: TxnRequest,
    lease: bigint,
    signal: AbortSignal | undefined,
  ): Promise<TxnResponse> {
    try {
      return await this.#client.write(request, lease, signal);
    } catch (error) {
      if (!hasReason(error, "UPSTREAM_DENIED")) throw error;
      if ((await this.#client.history.read(signal)) !== "") throw error;
      throw otherHistory(historyId, "");
    }
  }

  /** Best effort. */
  async #revoke(lease: bigint): Promise<void> {
    try {
      await this.#client.revokeLease(lease);
    } catch (error) {
      this.#client.logger.debug({ err: error, lease: String(lease) }, "left a lease to expire");
    }
  }
}

/**
 * Whether a failed write has certainly changed nothing. INTERNAL is an unreadable response, so the write may have
 * been executed.
 */
function isUndone(error: unknown, signal: AbortSignal | undefined): boolean {
  // The signal ends a write only before it is sent, or after etcd has refused it.
  if (signal?.aborted === true && error === signal.reason) return true;
  return (
    error instanceof WatchFanoutError &&
    !hasReason(error, "OUTCOME_UNKNOWN") &&
    !hasReason(error, "INTERNAL")
  );
}

/** The condition that the key has this mod revision, 0 if it must not exist; none if nothing is expected. */
function modRevisionIs(key: Buffer, expected: number | undefined): Compare[] {
  if (expected === undefined) return [];
  return [{ result: "Equal", target: "Mod", key, mod_revision: expected }];
}

function stateOf(key: Buffer): RequestOp {
  return { request_range: { key, keys_only: true } };
}

function isStill(historyId: string, marker: IKeyValue | undefined): boolean {
  return marker?.value.equals(Buffer.from(historyId)) ?? false;
}

function rangeIn(response: TxnResponse, position: number): IKeyValue | undefined {
  return response.responses[position]?.response_range?.kvs[0];
}

function conflict(request: PutRequest | DeleteRequest, state: IKeyValue | undefined): Error {
  const modRevision = state === undefined ? 0 : safeNumber(state.mod_revision);
  return revisionConflict(request.key, request.expectedModRevision ?? 0, modRevision);
}
