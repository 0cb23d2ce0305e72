import { createHash } from "node:crypto";
import type { IKeyValue } from "etcd3";
import { hasReason } from "../../base/errors.ts";
import { SingleFlight } from "../../base/single-flight.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { Compare, RequestOp } from "../../etcd/client/requests.ts";
import type { DeletePrefixRequest, TransactRequest } from "../store.ts";
import { fingerprintOf, requestIdReused } from "../transaction-checks.ts";
import { safeNumber } from "./objects/decode.ts";

/** How long a request's id is remembered at least, in milliseconds. */
const rememberedMs = 5 * 60_000;

/** How long a lease takes new markers, in milliseconds. */
const sharedMs = 60_000;

/** How many it takes, about: etcd deletes them in one step, in which it does nothing else. */
const maxShared = 1_000;

/** The marker of one request in etcd. */
export interface RequestMarker {
  /** A condition: the request was not executed. */
  readonly isAbsent: Compare;
  readonly reading: RequestOp;
  /** Remembers that it was. */
  readonly writing: RequestOp;
  /**
   * The revision at which it was, from what `reading` returned; undefined: it was not. Throws REQUEST_ID_REUSED if the marker is
   * of another request.
   */
  revisionIn(found: IKeyValue | undefined): number | undefined;
}

/**
 * Remembers requests in etcd: each is a key with the request's fingerprint, which its own transaction writes, so the key's
 * revision is that of the request. The keys have leases, each of which those of a minute share, as far as they are not too many.
 */
export class RequestMarkers {
  readonly #client: EtcdClient;
  readonly #granting: SingleFlight<bigint>;
  #lease = 0n;
  /** Number of markers that were given the lease. */
  #shares = 0;
  #sharedUntil = -Infinity;

  constructor(client: EtcdClient) {
    this.#client = client;
    this.#granting = new SingleFlight(async () => {
      if (this.#isShared) return this.#lease;
      const sharedUntil = client.clock.now() + sharedMs;
      this.#lease = await client.leases.grant((rememberedMs + sharedMs) / 1_000);
      this.#sharedUntil = sharedUntil;
      this.#shares = 0;
      return this.#lease;
    }, client.clock);
  }

  /** Performs `write` with the marker of a request; again with another lease if etcd has lost that of the marker. */
  async with<T>(
    request: TransactRequest | DeletePrefixRequest,
    write: (marker: RequestMarker) => Promise<T>,
  ): Promise<T> {
    const { requestId = "" } = request;
    const fingerprint = fingerprintOf(request);
    const lease = await this.#shared();
    try {
      return await write(this.#marker(requestId, fingerprint, lease));
    } catch (error) {
      if (!hasReason(error, "LEASE_NOT_FOUND")) throw error;
      // etcd does not say which lease it does not have: the request may name others.
      if (await this.#client.leases.has(lease)) throw error;
      if (this.#lease === lease) this.#sharedUntil = -Infinity;
      return write(this.#marker(requestId, fingerprint, await this.#shared()));
    }
  }

  /** Whether the lease takes further markers. */
  get #isShared(): boolean {
    return this.#shares < maxShared && this.#client.clock.now() < this.#sharedUntil;
  }

  async #shared(): Promise<bigint> {
    if (!this.#isShared) await this.#granting.run();
    this.#shares++;
    return this.#lease;
  }

  #marker(requestId: string, fingerprint: string, lease: bigint): RequestMarker {
    const id = createHash("sha256").update(requestId).digest("base64url");
    const key = Buffer.concat([this.#client.history.own.requestsPrefix, Buffer.from(id)]);
    return {
      isAbsent: { result: "Equal", target: "Mod", key, mod_revision: 0 },
      reading: { request_range: { key } },
      writing: {
        request_put: { key, value: Buffer.from(fingerprint), lease: String(lease) },
      },
      revisionIn: (found) => {
        if (found === undefined) return undefined;
        const revision = safeNumber(found.mod_revision);
        if (found.value.toString() === fingerprint) return revision;
        throw requestIdReused(revision);
      },
    };
  }
}
