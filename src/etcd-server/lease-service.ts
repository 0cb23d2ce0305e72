import { status } from "@grpc/grpc-js";
import { hasReason } from "../base/errors.ts";
import { keyBytes } from "../model/key-bytes.ts";
import { bytesField, number } from "../protobuf/fields.ts";
import { EtcdError, etcdErrors } from "./protocol/errors.ts";
import { decode, leaseId } from "./protocol/requests.ts";
import type { ServedStore } from "./protocol/served-store.ts";

/** etcd's bounds of a time to live, in seconds: the shortest with its default election timeout, and the longest. */
const minTtl = 2;
const maxTtl = 9_000_000_000;

/** The highest id of a lease. */
const maxId = 2n ** 63n - 1n;

/** etcd's Lease service, as `KvService`. */
export class LeaseService {
  readonly #served: ServedStore;

  constructor(served: ServedStore) {
    this.#served = served;
  }

  async grant(message: Buffer): Promise<Buffer> {
    const request = decode.leaseGrant(message);
    const asked = Number(request.TTL);
    if (asked > maxTtl) throw etcdErrors.leaseTooLong();
    const ttl = Math.max(asked, minTtl);
    const id = request.ID === "0" ? undefined : leaseId(request.ID);
    if (id !== undefined && id > maxId) throw negativeLease(request.ID);
    try {
      const { lease } = await this.#served.store.leases.grant(ttl, undefined, id);
      return this.#served.response(number(0x10, lease), number(0x18, ttl));
    } catch (error) {
      throw hasReason(error, "INVALID_REQUEST") ? etcdErrors.leaseExists() : error;
    }
  }

  async revoke(message: Buffer): Promise<Buffer> {
    const { ID } = decode.leaseRevoke(message);
    await this.#served.store.leases.revoke(leaseId(ID));
    return this.#served.response();
  }

  /** Renews a lease, for one request of a stream. Of one that does not exist the response has no time to live. */
  async keepAlive(message: Buffer): Promise<Buffer> {
    const id = leaseId(decode.leaseKeepAlive(message).ID);
    const [ttlMs = 0] = await this.#served.store.leases.keepAlive([id]);
    const ttl = typeof ttlMs === "number" ? Math.floor(ttlMs / 1_000) : 0;
    return this.#served.response(number(0x10, id), number(0x18, ttl));
  }

  async timeToLive(message: Buffer): Promise<Buffer> {
    const request = decode.leaseTimeToLive(message);
    const id = leaseId(request.ID);
    try {
      const { ttlMs, grantedTtlSeconds, keys } = await this.#served.store.leases.attached(id);
      const shown = request.keys === true ? keys : [];
      return this.#served.response(
        number(0x10, id),
        number(0x18, Math.floor(ttlMs / 1_000)),
        number(0x20, grantedTtlSeconds),
        // Not as arguments: for 150,000 keys the stack has no room.
        Buffer.concat(shown.map((key) => bytesField(0x2a, keyBytes(key)))),
      );
    } catch (error) {
      if (!hasReason(error, "LEASE_NOT_FOUND")) throw error;
      return this.#served.response(number(0x10, id), number(0x18, -1));
    }
  }

  async leases(): Promise<Buffer> {
    const ids = await this.#served.store.leases.ids();
    return this.#served.response(
      Buffer.concat(ids.map((id) => bytesField(0x12, number(0x08, id)))),
    );
  }
}

function negativeLease(id: string): EtcdError {
  const details = `The embedded store has no lease with the id ${id}, as it is negative: choose another one.`;
  return new EtcdError(status.INVALID_ARGUMENT, details);
}
