import { randomBytes } from "node:crypto";
import { LeaseClient } from "etcd3";
import { upstreamUnavailable } from "../../base/errors.ts";
import { isStaleToken, readError } from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { OwnKeys } from "../../etcd/client/own-keys.ts";
import type { KeepAliveResponse } from "../../etcd/client/requests.ts";
import { isRawKey, keyText } from "../../model/key-bytes.ts";
import {
  endedLease,
  LeaseRenewals,
  leaseNotFound,
  type RenewalListener,
  type RenewalStream,
} from "../lease-renewals.ts";
import type { GrantedLease, LeaseState, Leases, ObjectName } from "../store.ts";

/** Returns the object that a key of etcd is; undefined: of no resource of the service. */
export type NameOfKey = (key: Buffer) => ObjectName | undefined;

/**
 * The leases of etcd. Their ids are random: those that etcd chooses can be guessed. All of them are kept alive on one
 * stream, at one member.
 */
export class EtcdLeases implements Leases {
  readonly #client: EtcdClient;
  readonly #nameOf: NameOfKey;
  readonly #renewals: LeaseRenewals;

  /** Sends nothing. */
  constructor(client: EtcdClient, nameOf: NameOfKey) {
    this.#client = client;
    this.#nameOf = nameOf;
    const { clock, requestTimeoutMs: timeoutMs } = client;
    this.#renewals = new LeaseRenewals({
      ...{ clock, timeoutMs },
      open: (listener) => openStream(client, listener),
    });
  }

  async grant(ttlSeconds: number, signal?: AbortSignal): Promise<GrantedLease> {
    const { ID, TTL } = await this.#client.call(
      // Another id at each attempt: one without a response may have been granted, and expires.
      (member) =>
        new LeaseClient(member).leaseGrant({ TTL: ttlSeconds, ID: String(randomLease()) }),
      signal,
    );
    return { lease: BigInt(ID), ttlSeconds: Number(TTL) };
  }

  keepAlive(leases: readonly bigint[], signal?: AbortSignal): Promise<readonly (number | Error)[]> {
    return this.#renewals.renew(leases, signal);
  }

  async revoke(lease: bigint, signal?: AbortSignal): Promise<void> {
    if (!(await this.#client.leases.revoke(lease, signal))) throw leaseNotFound(lease);
  }

  async timeToLive(lease: bigint, objects: boolean, signal?: AbortSignal): Promise<LeaseState> {
    const { clock } = this.#client;
    let askedAt = 0;
    const { TTL, grantedTTL, keys } = await this.#client.call((member) => {
      askedAt = clock.now();
      return new LeaseClient(member).leaseTimeToLive({ ID: String(lease), keys: objects });
    }, signal);
    const grantedTtlSeconds = Number(grantedTTL);
    if (grantedTtlSeconds <= 0) throw leaseNotFound(lease);
    const named = keys.flatMap((key) => this.#nameOf(key) ?? []);
    return {
      ttlMs: Math.max(0, Number(TTL) * 1_000 - (clock.now() - askedAt)),
      grantedTtlSeconds,
      objects: named,
      others: keys.length - named.length,
    };
  }

  /** Every later renewal has UPSTREAM_UNAVAILABLE. Close it before the client. Idempotent. */
  close(): void {
    this.#renewals.close(upstreamUnavailable("The connection to etcd is closed."));
  }
}

/** The names of the keys below the prefixes of resources, which do not overlap, without the service's own keys. */
export function namesByPrefix(
  resources: Iterable<{ readonly name: string; readonly prefix: string }>,
  own: Pick<OwnKeys, "has">,
): NameOfKey {
  const known = Array.from(resources, ({ name, prefix }) => ({
    resource: name,
    prefix: Buffer.from(prefix),
  }));
  return (key) => {
    if (own.has(key)) return undefined;
    for (const { resource, prefix } of known) {
      if (!key.subarray(0, prefix.length).equals(prefix)) continue;
      const text = keyText(key, prefix.length, key.length);
      return isRawKey(text) ? undefined : { resource, key: text };
    }
    return undefined;
  };
}

/** A random id with 63 bits, above 0. */
function randomLease(): bigint {
  return BigInt.asUintN(63, randomBytes(8).readBigUInt64BE()) || 1n;
}

async function openStream(
  client: EtcdClient,
  { renewed, ended }: RenewalListener,
): Promise<RenewalStream> {
  const { member, call } = await client.openKeepAlive();
  let isClosed = false;
  const end = (error: Error): void => {
    if (isClosed) return;
    isClosed = true;
    call.cancel();
    client.failed(member);
    if (isStaleToken(error)) client.forgetToken();
    ended(error);
  };
  call.on("data", ({ TTL }: KeepAliveResponse) => {
    const seconds = Number(TTL);
    if (!isClosed) renewed([seconds > 0 ? seconds * 1_000 : endedLease]);
  });
  call.on("end", () => end(upstreamUnavailable(`The etcd at ${member.endpoint} ended a stream.`)));
  call.on("error", (error: Error) => end(readError(error, member.endpoint)));
  return {
    send: (leases) => {
      for (const lease of leases) call.write({ ID: String(lease) });
    },
    close: (hasStalled) => {
      isClosed = true;
      call.cancel();
      if (hasStalled) client.failed(member);
    },
  };
}
