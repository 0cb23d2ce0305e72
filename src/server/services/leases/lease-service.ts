import { hasReason, invalidRequest, WatchFanoutError } from "../../../base/errors.ts";
import { leaseName, permissionDenied } from "../../../policy/access.ts";
import type { GrantedLease, LeaseState, Leases } from "../../../storage/store.ts";
import { durationOf } from "../../../wire/encode.ts";
import type { GrantRequest__Output } from "../../../wire/generated/watchfanout/v1/GrantRequest.ts";
import type { RevokeRequest__Output } from "../../../wire/generated/watchfanout/v1/RevokeRequest.ts";
import type { TimeToLiveRequest__Output } from "../../../wire/generated/watchfanout/v1/TimeToLiveRequest.ts";
import { leaseService } from "../../../wire/services.ts";
import { expectedObjectBytes } from "../../calls/call-admission.ts";
import { leaseAccess, reading, revoking } from "../../calls/lease-authorizer.ts";
import type { ServiceMethods, UnaryCall, UnaryMethod } from "../../calls/methods.ts";
import type { ServiceContext } from "../../calls/service-context.ts";
import { requiredLease, ttlOf } from "../parse-requests.ts";
import { KeepAliveMethod } from "./keep-alive-method.ts";

/** Maximum size of the names of objects in a response, in bytes: clients of gRPC accept 4 MiB. */
const maxObjectsBytes = 4 * 1024 ** 2;

/** The size of a response without objects, in bytes. */
const smallResponseBytes = 64;

/** Serves watchfanout.v1.LeaseService: the leases of a store. */
export class LeaseService {
  readonly #context: ServiceContext;
  readonly #leases: Leases;
  /** Its method with a stream of requests. */
  readonly keepAlive: KeepAliveMethod;

  constructor(context: ServiceContext, leases: Leases) {
    this.#context = context;
    this.#leases = leases;
    this.keepAlive = new KeepAliveMethod(context, leases);
  }

  /** The handlers of the others, by name. */
  readonly methods: ServiceMethods = {
    Grant: {
      kind: "writes",
      access: "open",
      audited: () => leaseAccess("put", "a new lease"),
      perform: async (request, call) => {
        const ttlSeconds = ttlOf(request);
        if (ttlSeconds === undefined)
          throw invalidRequest("ttl", "ttl is absent. Say how long the lease lasts.");
        this.#checkGrant(call);
        const wait = call.admit(smallResponseBytes);
        if (wait !== undefined) {
          await wait;
          this.#checkGrant(call);
        }
        const { lease, ttlSeconds: length } = await this.#grant(ttlSeconds, call);
        const ttl = durationOf(length * 1_000);
        return () => [leaseService.Grant.responseSerialize({ lease: String(lease), ttl })];
      },
    } satisfies UnaryMethod<GrantRequest__Output>,
    Revoke: {
      kind: "writes",
      access: "open",
      audited: ({ lease }) => leaseAccess("delete", leaseName(BigInt(lease))),
      perform: async (request, call) => {
        const { leaseAuthorizer, grantedLeases } = this.#context;
        const lease = requiredLease(request.lease);
        await leaseAuthorizer.check(call, lease, revoking);
        const wait = call.admit(smallResponseBytes);
        if (wait !== undefined) {
          await wait;
          // The policy may have changed meanwhile, and what is attached.
          await leaseAuthorizer.check(call, lease, revoking);
        }
        await this.#forgetting(lease, this.#leases.revoke(lease, call.signal));
        grantedLeases.ended(lease);
        return () => [leaseService.Revoke.responseSerialize({})];
      },
    } satisfies UnaryMethod<RevokeRequest__Output>,
    TimeToLive: {
      kind: "reads",
      access: "open",
      audited: ({ lease }) => leaseAccess("get", leaseName(BigInt(lease))),
      perform: async (request, call) => {
        const wait = call.admit(expectedObjectBytes);
        if (wait !== undefined) await wait;
        const { ttlMs, grantedTtlSeconds, objects, others } = await this.#read(call, request);
        return () => [
          leaseService.TimeToLive.responseSerialize({
            ttl: durationOf(ttlMs),
            granted_ttl: durationOf(grantedTtlSeconds * 1_000),
            objects: [...objects],
            others,
          }),
        ];
      },
    } satisfies UnaryMethod<TimeToLiveRequest__Output>,
  };

  /** Throws the refusal if the caller may put nothing. */
  #checkGrant(call: UnaryCall): void {
    if (this.#context.leaseAuthorizer.mayAny(call.identity, ["put"])) return;
    call.deny();
    throw permissionDenied(call.identity, leaseAccess("put", "a new lease"));
  }

  /** Reads a lease all of whose objects the caller may get. */
  async #read(
    call: UnaryCall,
    { lease: id, objects: hasObjects }: TimeToLiveRequest__Output,
  ): Promise<LeaseState> {
    const { authorizer, leaseAuthorizer } = this.#context;
    const { identity } = call;
    const lease = requiredLease(id);
    const isLimited = authorizer.isLimited(identity);
    // What it says is what was checked.
    const asked = leaseAuthorizer.mayAny(identity, reading.among)
      ? this.#leases.timeToLive(lease, hasObjects || isLimited, call.signal)
      : undefined;
    const state = asked && (await this.#forgetting(lease, asked));
    const refusal = leaseAuthorizer.refusalOfState(identity, lease, reading, state);
    if (refusal !== undefined || state === undefined) {
      call.deny();
      throw refusal;
    }
    const bytes = state.objects.reduce((sum, { resource, key }) => {
      return sum + 3 * (resource.length + key.length) + 16;
    }, 0);
    if (bytes > maxObjectsBytes) throw tooManyObjects(lease, state.objects.length);
    return hasObjects ? state : { ...state, objects: [], others: 0 };
  }

  /** Grants a lease that the caller may have. */
  async #grant(ttlSeconds: number, { owner, signal }: UnaryCall): Promise<GrantedLease> {
    const { grantedLeases } = this.#context;
    const { caller } = owner;
    const refusal = grantedLeases.begin(caller);
    if (refusal !== undefined) throw refusal;
    try {
      const granted = await this.#leases.grant(ttlSeconds, signal);
      grantedLeases.granted(caller, granted.lease, granted.ttlSeconds * 1_000);
      return granted;
    } catch (error) {
      grantedLeases.failed(caller);
      throw error;
    }
  }

  /** Settles as the call does. A lease that is not found does not count any more. */
  async #forgetting<T>(lease: bigint, call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      if (hasReason(error, "LEASE_NOT_FOUND")) this.#context.grantedLeases.ended(lease);
      throw error;
    }
  }
}

function tooManyObjects(lease: bigint, count: number): WatchFanoutError {
  return new WatchFanoutError(
    "LIST_TOO_LARGE",
    `The names of the ${count} objects of the lease ${lease} are above ${maxObjectsBytes} bytes. Leave out objects, or attach ` +
      "fewer to one lease.",
    { metadata: { limit: String(maxObjectsBytes) } },
  );
}
