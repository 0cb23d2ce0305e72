import type { IKeyValue } from "etcd3";
import { objectNotFound, revisionConflict } from "../../base/errors.ts";
import { abortable } from "../../base/wait.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { Compare, RequestOp, TxnRequest } from "../../etcd/client/requests.ts";
import { StoredObject } from "../../model/object.ts";
import type { DeleteRequest, PutRequest, WriteResult } from "../storage.ts";
import { CheckedWrites, rangeIn } from "./checked-writes.ts";
import { loadedObject, safeNumber } from "./objects/decode.ts";

/**
 * Writes to etcd. Each write is one transaction that checks the expectations and writes, or does neither.
 *
 * When a caller aborts a write, its call rejects at once. A write that was sent continues to its outcome, which decides
 * what happens to its lease.
 */
export class Writer {
  readonly #writes: CheckedWrites;

  constructor(client: EtcdClient) {
    this.#writes = new CheckedWrites(client);
  }

  /** `key` is absolute. The request is valid. */
  put(key: Buffer, request: PutRequest): Promise<WriteResult> {
    const { ttlSeconds, lease = 0n, signal } = request;
    return abortable(
      ttlSeconds === undefined
        ? this.#putUnder(lease, key, request)
        : this.#writes.underNewLeases([ttlSeconds], signal, ([granted = 0n]) =>
            this.#putUnder(granted, key, request),
          ),
      signal,
    );
  }

  /** `key` is absolute. The request is valid. */
  delete(key: Buffer, request: DeleteRequest): Promise<WriteResult> {
    return abortable(this.#delete(key, request), request.signal);
  }

  async #delete(key: Buffer, request: DeleteRequest): Promise<WriteResult> {
    const deletion = { request_delete_range: { key, prev_kv: true } };
    const { response, historyId } = await this.#writes.write(
      transactionOf(key, [deletion], request),
      0n,
      request,
    );
    const revision = safeNumber(response.header.revision);
    const [deleted] = response.responses[0]?.response_delete_range?.prev_kvs ?? [];
    if (deleted !== undefined) {
      return { revision, object: loadedObject(request.key, deleted), historyId };
    }
    const state = response.succeeded ? undefined : rangeIn(response, 0);
    if (state === undefined) throw objectNotFound(request.key, revision);
    throw conflict(request, state);
  }

  async #putUnder(lease: bigint, key: Buffer, request: PutRequest): Promise<WriteResult> {
    const { buffer, byteOffset, byteLength } = request.value;
    const value = Buffer.from(buffer, byteOffset, byteLength);
    const success = [
      { request_put: { key, value, lease: String(lease) } },
      // Reads the version and the create revision, which a put does not return.
      stateOf(key),
    ];
    const { response, historyId } = await this.#writes.write(
      transactionOf(key, success, request),
      lease,
      request,
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
}

/** The condition that the key has this mod revision, 0 if it must not exist; none if nothing is expected. */
function modRevisionIs(key: Buffer, expected: number | undefined): Compare[] {
  if (expected === undefined) return [];
  return [{ result: "Equal", target: "Mod", key, mod_revision: expected }];
}

/** Reads what the key has if it is not as expected. */
function transactionOf(
  key: Buffer,
  success: RequestOp[],
  { expectedModRevision }: PutRequest | DeleteRequest,
): TxnRequest {
  return { compare: modRevisionIs(key, expectedModRevision), success, failure: [stateOf(key)] };
}

/** Reads what etcd knows of a key without its value. */
export function stateOf(key: Buffer): RequestOp {
  return { request_range: { key, keys_only: true } };
}

function conflict(request: PutRequest | DeleteRequest, state: IKeyValue | undefined): Error {
  const modRevision = state === undefined ? 0 : safeNumber(state.mod_revision);
  return revisionConflict(request.key, request.expectedModRevision ?? 0, modRevision);
}
