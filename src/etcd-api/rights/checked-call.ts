import { randomBytes } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import { WatchFanoutError } from "../../base/errors.ts";
import {
  grantWithId,
  isLeaseMethod,
  type KeyMethod,
  type LeasedKey,
  type LeaseMethod,
  readKeyAccesses,
  readLeaseRequest,
} from "../../etcd/wire/checked-requests.ts";
import { type Access, leaseName } from "../../policy/access.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { Rounds } from "../../server/kernel/rounds.ts";
import { type FrameParts, frameOf, prefixSize } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import type { EtcdCall } from "../calls/etcd-call.ts";
import { RequestCall } from "../calls/request-call.ts";
import { type KeyRights, leasedBytes } from "./key-rights.ts";
import { attaching, type LeaseRights, type LeaseUse, revoking } from "./lease-rights.ts";

/** Maximum size of a request, in bytes: etcd's default --max-request-bytes and 512 KiB. */
const maxRequestBytes = 2 * 1024 ** 2;

/** What a checked call is made of. */
export interface CheckedCallDeps {
  readonly path: KeyMethod | LeaseMethod;
  readonly mayWrite: boolean;
  readonly metadata: IncomingHttpHeaders;
  readonly calls: Rounds<EtcdCall>;
  readonly rights: KeyRights;
  readonly leases: LeaseRights;
  /** Handles the call with its request, with gRPC's framing, and the rights that it needs while it is open. */
  readonly proceed: (request: Buffer, access: readonly Access[]) => void;
}

/**
 * A call of a caller that may not do everything. Its whole request is read, until the client has half-closed the call, and
 * checked. Only then the call is handled, with exactly the message that was checked.
 */
export class CheckedCall extends RequestCall {
  readonly #deps: CheckedCallDeps;
  /** The rights to its keys, while it waits for those to its leases. */
  #access: readonly Access[] = [];

  constructor(call: RawCall, context: ServiceContext, deps: CheckedCallDeps) {
    super(call, context, deps.calls, "etcd call", deps.path.slice(1), []);
    this.#deps = deps;
  }

  override get access(): readonly Access[] {
    return this.#access;
  }

  protected override get waitsFor(): "nothing" {
    return "nothing";
  }

  protected override next(): FrameParts | undefined {
    return undefined;
  }

  protected override onArrived(): void {
    if (this.received.received > maxRequestBytes) this.#refuse();
  }

  protected override onRequestEnd(): void {
    this.stopReading();
    const { bytes, size, received, isCompressed } = this.received;
    const isOneMessage = received >= 0 && received === size && !isCompressed;
    const { path } = this.#deps;
    if (!isOneMessage) this.#refuse();
    else if (isLeaseMethod(path)) this.#checkLease(path, bytes.subarray(prefixSize));
    else this.#checkKeys(path, bytes.subarray(prefixSize));
  }

  #checkKeys(path: KeyMethod, message: Buffer): void {
    const accesses = readKeyAccesses(path, message);
    if (accesses === undefined) {
      this.#refuse();
      return;
    }
    const access = this.#deps.rights.check(accesses.keys);
    if (access instanceof WatchFanoutError) {
      this.end(statusOf(access));
      return;
    }
    this.#access = access;
    if (accesses.leased.length === 0) this.#proceed();
    else void this.#proceedUnless(this.#attachRefusal(accesses.leased));
  }

  /** Checks a request of LeaseGrant or LeaseRevoke. */
  #checkLease(path: LeaseMethod, message: Buffer): void {
    const { rights } = this.#deps;
    const request = readLeaseRequest(path, message);
    if (request === undefined) {
      this.#refuse();
    } else if (path === "/etcdserverpb.Lease/LeaseRevoke") {
      void this.#proceedUnless(this.#revokeRefusal(request.lease));
    } else if (request.lease !== 0n) {
      this.end(statusOf(rights.refuseChosenLease(request.lease)));
    } else {
      rights.recordAllowed("put", { prefix: "" });
      this.#proceed(Buffer.concat(frameOf(grantWithId(message, unguessableId()))));
    }
  }

  async #revokeRefusal(lease: bigint): Promise<WireStatus | undefined> {
    const refusal = await this.#leaseRefusal(lease, revoking);
    if (refusal !== undefined) return refusal;
    this.#deps.rights.recordAllowed("delete", { key: leaseName(lease) });
    return undefined;
  }

  async #attachRefusal(leased: readonly LeasedKey[]): Promise<WireStatus | undefined> {
    const bytesByLease = new Map<bigint, number>();
    for (const { lease, key } of leased) {
      bytesByLease.set(lease, (bytesByLease.get(lease) ?? 0) + leasedBytes(key));
    }
    // Not one after another: the answer for the first would be old when the last has come.
    const refusals = await Promise.all(
      Array.from(bytesByLease, ([lease, bytes]) => this.#leaseRefusal(lease, attaching, bytes)),
    );
    return refusals.find((refusal) => refusal !== undefined);
  }

  #leaseRefusal(lease: bigint, use: LeaseUse, bytes?: number): Promise<WireStatus | undefined> {
    const { metadata, rights, leases } = this.#deps;
    const limited = { call: this.call, metadata, rights, signal: this.gone };
    return leases.refusal(limited, lease, use, bytes);
  }

  /** Handles the call if there is no refusal. */
  async #proceedUnless(refusing: Promise<WireStatus | undefined>): Promise<void> {
    try {
      const refusal = await refusing;
      if (this.isOver) return;
      if (refusal === undefined) this.#proceed();
      else this.end(refusal);
    } catch (error) {
      if (!this.isOver) this.onFailed(error);
    }
  }

  /** Handles the call, as a rule with the request that was received. */
  #proceed(request: Buffer = Buffer.from(this.received.bytes)): void {
    this.close();
    this.#deps.proceed(request, this.#access);
  }

  #refuse(): void {
    this.end(statusOf(this.#deps.rights.refuseUnread(this.#deps.mayWrite)));
  }
}

/**
 * An id for a lease. etcd's own are consecutive, and another caller that knows the id of a lease without keys could revoke it, or
 * attach a key that ends its use. Nor may a limited caller choose one: etcd refuses a grant whose next id is taken, also if
 * it would choose that itself.
 */
function unguessableId(): bigint {
  return BigInt.asUintN(63, randomBytes(8).readBigUInt64BE());
}
