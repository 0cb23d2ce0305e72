import { type ICallable, LeaseClient } from "etcd3";
import { isServiceError, leaseNotFound, says } from "./errors.ts";
import type { Member } from "./member.ts";

/** Calls some member: `EtcdClient.call`. */
type CallMember = <Result>(
  call: (member: ICallable<Member>) => Promise<Result>,
  signal?: AbortSignal,
) => Promise<Result>;

/** The calls of etcd's leases, by their ids. */
export class LeaseCalls {
  readonly #call: CallMember;

  constructor(call: CallMember) {
    this.#call = call;
  }

  /**
   * Grants a lease of at least this many seconds: etcd has a minimum of its own. If the response is lost, the unused
   * lease expires.
   */
  async grant(ttlSeconds: number): Promise<bigint> {
    const { ID } = await this.#call((member) =>
      new LeaseClient(member).leaseGrant({ TTL: ttlSeconds }),
    );
    return BigInt(ID);
  }

  /** Whether etcd has a lease. */
  async has(lease: bigint): Promise<boolean> {
    const { grantedTTL } = await this.#call((member) =>
      new LeaseClient(member).leaseTimeToLive({ ID: String(lease) }),
    );
    return Number(grantedTTL) > 0;
  }

  /** Ends a lease, and deletes what is attached to it. Resolves to whether etcd had it. */
  revoke(lease: bigint, signal?: AbortSignal): Promise<boolean> {
    let attempts = 0;
    return this.#call(async (member) => {
      attempts++;
      try {
        await new LeaseClient(member).leaseRevoke({ ID: String(lease) });
        return true;
      } catch (error) {
        if (!isServiceError(error) || !says(error.details, leaseNotFound)) throw error;
        // The attempt before may have ended it.
        return attempts > 1;
      }
    }, signal);
  }

  /** Renews a lease. Resolves to whether it is still there. */
  async renew(lease: bigint): Promise<boolean> {
    // The only request of a stream.
    const request = { ID: String(lease) };
    const answer = await this.#call((member) => member.exec("Lease", "leaseKeepAlive", request));
    return Number((answer as { readonly TTL: string }).TTL) > 0;
  }
}
