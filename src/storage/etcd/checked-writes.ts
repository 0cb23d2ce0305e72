import type { IKeyValue } from "etcd3";
import { hasReason, otherHistory, WatchFanoutError } from "../../base/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { TxnRequest, TxnResponse } from "../../etcd/client/requests.ts";

/** What a write expects of the history, and what ends it. */
interface Expectation {
  readonly historyId?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** etcd's response, and the id of its history at that time; empty if it can't be read. */
export interface Written {
  readonly response: TxnResponse;
  readonly historyId: string;
}

/** Transactions of etcd that check the history's id, or read it, together with what they do. */
export class CheckedWrites {
  readonly #client: EtcdClient;

  constructor(client: EtcdClient) {
    this.#client = client;
  }

  /**
   * Sends the transaction, with one more compare and one more operation at the end of each branch. Resolves also if its
   * compares do not hold. Rejects with HISTORY_CHANGED. `lease` is only for the error message.
   */
  async write(request: TxnRequest, lease: bigint, expectation: Expectation): Promise<Written> {
    const { historyId = "", signal } = expectation;
    if (historyId === "") return this.#writeNaming(request, lease, signal);
    const { history } = this.#client;
    if (!history.mayBe(historyId)) throw otherHistory(historyId, await history.read(signal));
    const { compare, success, failure } = request;
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
    if (response.succeeded || isStill(historyId, rangeIn(response, failure.length)))
      return { response, historyId };
    throw otherHistory(historyId, await history.read(signal));
  }

  /**
   * Performs `write` with a new lease, which is revoked if nothing was written, also after the caller has aborted.
   * `isDone`: whether the result has written something.
   */
  async underNewLeases<T>(
    lengths: readonly number[],
    signal: AbortSignal | undefined,
    write: (leases: readonly bigint[]) => Promise<T>,
    isDone: (result: T) => boolean = () => true,
  ): Promise<T> {
    const leases: bigint[] = [];
    try {
      for (const ttlSeconds of lengths) {
        // No further raft proposals after the call has ended: it does not count as in flight any more.
        signal?.throwIfAborted();
        leases.push(await this.#client.leases.grant(ttlSeconds));
      }
      const result = await write(leases);
      if (!isDone(result)) await this.#revoke(leases);
      return result;
    } catch (error) {
      // If an object may exist, its lease stays: both go when it expires.
      if (isUndone(error, signal)) await this.#revoke(leases);
      throw error;
    }
  }

  /** Best effort. */
  async #revoke(leases: readonly bigint[]): Promise<void> {
    for (const lease of leases) {
      try {
        await this.#client.leases.revoke(lease);
      } catch (error) {
        this.#client.logger.debug({ err: error, lease: String(lease) }, "left a lease to expire");
      }
    }
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

function isStill(historyId: string, marker: IKeyValue | undefined): boolean {
  return marker?.value.equals(Buffer.from(historyId)) ?? false;
}

/** The key that the operation at this position has read. */
export function rangeIn(response: TxnResponse, position: number): IKeyValue | undefined {
  return response.responses[position]?.response_range?.kvs[0];
}
