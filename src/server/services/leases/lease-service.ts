import { pause } from "../../../base/clock.ts";
import { hasReason, invalidRequest, WatchFanoutError } from "../../../base/errors.ts";
import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import { Turns } from "../../../base/turns.ts";
import { draining, expired } from "../../../cacher/request/errors.ts";
import {
  type Access,
  everyResource,
  leaseName,
  permissionDenied,
  type Verb,
} from "../../../policy/access.ts";
import type { GrantedLease, LeaseState, Leases } from "../../../storage/store.ts";
import { durationOf, frameOf } from "../../../wire/encode.ts";
import { encodedStatus, statusOf } from "../../../wire/errors.ts";
import type { GrantRequest__Output } from "../../../wire/generated/watchfanout/v1/GrantRequest.ts";
import type { KeepAliveRequest__Output } from "../../../wire/generated/watchfanout/v1/KeepAliveRequest.ts";
import type { RevokeRequest__Output } from "../../../wire/generated/watchfanout/v1/RevokeRequest.ts";
import type { TimeToLiveRequest__Output } from "../../../wire/generated/watchfanout/v1/TimeToLiveRequest.ts";
import { encodeRenewals, type RenewalOutcome } from "../../../wire/renewals.ts";
import { leaseService } from "../../../wire/services.ts";
import { auditDenied } from "../../calls/audit.ts";
import { expectedObjectBytes } from "../../calls/call-admission.ts";
import { keepingAlive, type LeaseUse, reading, revoking } from "../../calls/lease-authorizer.ts";
import {
  type BidiMethod,
  decoderOf,
  methodOf,
  type ServiceMethods,
  type UnaryCall,
  type UnaryMethod,
} from "../../calls/methods.ts";
import { toClientError, tooMuchRetained } from "../../calls/refusals.ts";
import { type NextRequest, RefusedRequest, type ServerCall } from "../../calls/server-call.ts";
import type { ServiceContext } from "../../calls/service-context.ts";
import { Rounds } from "../../kernel/rounds.ts";
import { leaseOf, ttlOf } from "../parse-requests.ts";
import { expiryOf } from "../watch-handler.ts";
import { KeepAliveStream } from "./keep-alive-stream.ts";

/** Maximum number of leases of a KeepAlive request. */
const maxLeases = 10_000;

const decode = decoderOf<KeepAliveRequest__Output>(leaseService.KeepAlive.path, maxLeases);
const keepAliveMethod = methodOf(leaseService.KeepAlive.path);

/** Number of leases that are handed to the store in one step. */
const leasesPerStep = 1_000;

/** Maximum size of a KeepAlive request, in bytes: an id has up to 9. */
const maxRequestBytes = 128 * 1024;

/** Interval at which the age of streams is checked, in milliseconds. */
const checkIntervalMs = 1_000;

/** Maximum size of the names of objects in a response, in bytes: clients of gRPC accept 4 MiB. */
const maxObjectsBytes = 4 * 1024 ** 2;

/** The size of a response without objects, in bytes. */
const smallResponseBytes = 64;

/** Serves watchfanout.v1.LeaseService: the leases of a store. */
export class LeaseService {
  readonly #context: ServiceContext;
  readonly #leases: Leases;
  readonly #streams: Rounds<KeepAliveStream>;
  /** The KeepAlive requests that have arrived: one at a time of each stream. */
  readonly #requests: Turns;

  constructor(context: ServiceContext, leases: Leases) {
    this.#context = context;
    this.#leases = leases;
    this.#requests = new Turns(context.clock, Infinity);
    this.#streams = new Rounds(context.clock, {
      intervalMs: checkIntervalMs,
      visitsPerStep: 64,
      visit: (stream) => {
        const { expiresAt } = stream;
        if (expiresAt !== undefined && context.clock.now() >= expiresAt) stream.endSoon(expired());
      },
    });
  }

  /** KeepAlive. */
  get keepAlive(): BidiMethod {
    return {
      name: keepAliveMethod,
      maxRequestBytes,
      mayIdle: true,
      converse: (call, next) => void this.#converse(call, next),
    };
  }

  /** The handlers of the other methods, by name. */
  readonly methods: ServiceMethods = {
    Grant: {
      kind: "writes",
      access: "open",
      audited: () => accessOf("put", "a new lease"),
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
      audited: ({ lease }) => accessOf("delete", leaseName(BigInt(lease))),
      perform: async (request, call) => {
        const lease = requiredLease(request.lease);
        await this.#check(call, lease, revoking);
        const wait = call.admit(smallResponseBytes);
        if (wait !== undefined) {
          await wait;
          // The policy may have changed meanwhile, and what is attached.
          await this.#check(call, lease, revoking);
        }
        await this.#forgetting(lease, this.#leases.revoke(lease, call.signal));
        this.#context.grantedLeases.ended(lease);
        return () => [leaseService.Revoke.responseSerialize({})];
      },
    } satisfies UnaryMethod<RevokeRequest__Output>,
    TimeToLive: {
      kind: "reads",
      access: "open",
      audited: ({ lease }) => accessOf("get", leaseName(BigInt(lease))),
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
    throw permissionDenied(call.identity, accessOf("put", "a new lease"));
  }

  /** Reads a lease all of whose objects the caller may get. */
  async #read(
    call: UnaryCall,
    { lease: id, objects: hasObjects }: TimeToLiveRequest__Output,
  ): Promise<LeaseState> {
    const { leaseAuthorizer } = this.#context;
    const { identity } = call;
    const lease = requiredLease(id);
    const isLimited = leaseAuthorizer.isLimited(identity);
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

  /** Ends the streams with DRAINING. */
  drain(): void {
    for (const stream of this.#streams) stream.endSoon(draining());
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

  /** Throws the refusal if the caller may not use the lease so. */
  async #check(call: UnaryCall, lease: bigint, use: LeaseUse): Promise<void> {
    const refusal = await this.#context.leaseAuthorizer.refusal(call, lease, use);
    if (refusal === undefined) return;
    call.deny();
    throw refusal;
  }

  async #converse(call: ServerCall, next: NextRequest): Promise<void> {
    if (call.isOver) return;
    const context = this.#context;
    // Before the span ends, which would last as long as the stream.
    const refusal = context.streams.makeRoom(call.owner);
    if (refusal !== undefined) {
      call.end(statusOf(refusal));
      return;
    }
    call.span?.end(undefined);
    call.span = undefined;
    const stream = new KeepAliveStream(call, context, expiryOf(context), (ended) => {
      context.streams.delete(ended);
      this.#streams.delete(ended);
    });
    context.streams.add(stream);
    this.#streams.add(stream);
    try {
      while (!stream.isEnding) {
        const message = await next();
        if (message === undefined) {
          stream.halfClosed();
          return;
        }
        await this.#pace(call, stream, message);
        if (stream.isEnding) return;
        await this.#inTurn(call, stream, message);
        await stream.room();
      }
    } catch (error) {
      if (stream.isOver) return;
      if (error instanceof RefusedRequest) stream.end(error.status);
      else stream.end(statusOf(toClientError(error, keepAliveMethod, context.logger, call)));
    }
  }

  /** Handles one request in a turn of its caller, as thousands may arrive at once. Resolves when the next one may be. */
  #inTurn(call: ServerCall, stream: KeepAliveStream, message: Buffer): Promise<void> {
    return new Promise((resolve, reject) => {
      const step = (): boolean => {
        try {
          if (!stream.isOver) this.#handle(call, stream, message);
          resolve();
        } catch (error) {
          reject(error);
        }
        return false;
      };
      this.#requests.start(call.owner, { step });
    });
  }

  /** Resolves when further leases may be renewed for the caller, also for the first request of a stream. */
  async #pace(
    { owner, connection }: ServerCall,
    stream: KeepAliveStream,
    { byteLength }: Buffer,
  ): Promise<void> {
    const { renewalRate } = owner.caller;
    if (renewalRate?.isExceeded !== true) return;
    const { clock, retainedRequests } = this.#context;
    const kept = retainedRequests.reserve(connection, byteLength, () =>
      stream.evict(tooMuchRetained(retainedRequests)),
    );
    try {
      while (renewalRate.isExceeded && !stream.signal.aborted) {
        await pause(clock, renewalRate.waitMs(0), stream.signal);
      }
    } finally {
      kept.release();
    }
  }

  /** Throws if the request is invalid, or its caller may not renew any lease. */
  #handle(call: ServerCall, stream: KeepAliveStream, message: Buffer): void {
    const { request, fault } = decode(message);
    if (fault !== undefined) throw fault;
    const leases = leasesOf(request);
    const { identity } = call;
    const context = this.#context;
    if (!context.leaseAuthorizer.mayAny(identity, keepingAlive.among)) {
      const access = accessOf("put", "");
      auditDenied(context, keepAliveMethod, call, access);
      throw permissionDenied(identity, access);
    }
    call.owner.caller.renewalRate?.charge(leases.length);
    const answer = stream.answer();
    void this.#renew(call, stream, leases).then(
      (outcomes) => {
        if (stream.isOver) return;
        const message = encodeRenewals(leases, outcomes);
        context.observer?.sent(keepAliveMethod, 1, message.byteLength);
        answer(frameOf(message));
      },
      (error: unknown) => {
        if (stream.isOver) return;
        stream.end(statusOf(toClientError(error, keepAliveMethod, context.logger, call)));
      },
    );
  }

  async #renew(
    call: ServerCall,
    stream: KeepAliveStream,
    leases: readonly bigint[],
  ): Promise<readonly RenewalOutcome[]> {
    const { leaseAuthorizer } = this.#context;
    const { signal } = stream;
    const outcomes = leaseAuthorizer.isLimited(call.identity)
      ? await this.#renewAllowed(call, stream, leases)
      : await this.#keepAlive(call, leases, signal);
    this.#learn(leases, outcomes);
    return encoded(outcomes);
  }

  /** Renews leases, in steps if they are many. */
  async #keepAlive(
    { owner }: ServerCall,
    leases: readonly bigint[],
    signal: AbortSignal,
  ): Promise<readonly (number | Error)[]> {
    const store = this.#leases;
    if (leases.length <= leasesPerStep) return store.keepAlive(leases, signal);
    const parts: Promise<readonly (number | Error)[]>[] = [];
    const work = function* (): TimeSlicedWork<void> {
      for (let i = 0; i < leases.length; i += leasesPerStep) {
        const part = store.keepAlive(leases.slice(i, i + leasesPerStep), signal);
        // It may fail before the others are asked for.
        part.catch(() => {});
        parts.push(part);
        yield;
      }
    };
    await this.#requests.run(owner, work(), signal);
    return (await Promise.all(parts)).flat();
  }

  #learn(leases: readonly bigint[], outcomes: readonly (number | Error)[]): void {
    const { grantedLeases } = this.#context;
    for (let i = 0; i < leases.length; i++) {
      const [lease, outcome] = [leases[i] as bigint, outcomes[i]];
      if (typeof outcome === "number") grantedLeases.renewed(lease, outcome);
      else if (hasReason(outcome, "LEASE_NOT_FOUND")) grantedLeases.ended(lease);
    }
  }

  /** Renews those leases that the caller may keep alive. */
  async #renewAllowed(
    call: ServerCall,
    { signal }: KeepAliveStream,
    leases: readonly bigint[],
  ): Promise<readonly (number | Error)[]> {
    const context = this.#context;
    const { identity, owner } = call;
    const user = { identity, owner, signal };
    const refusals = await context.leaseAuthorizer.refusals(user, leases, keepingAlive);
    const allowed = leases.filter((_, i) => refusals[i] === undefined);
    const renewed = await this.#keepAlive(call, allowed, signal);
    let next = 0;
    return refusals.map((refusal) => refusal ?? (renewed[next++] as number | Error));
  }
}

/** What a request that needs a right for what is attached asks for, in the audit. */
function accessOf(verb: Verb, key: string): Access {
  return { verb, resource: everyResource, scope: key === "" ? { prefix: "" } : { key } };
}

function tooManyObjects(lease: bigint, count: number): WatchFanoutError {
  return new WatchFanoutError(
    "LIST_TOO_LARGE",
    `The names of the ${count} objects of the lease ${lease} are above ${maxObjectsBytes} bytes. Leave out objects, or attach ` +
      "fewer to one lease.",
    { metadata: { limit: String(maxObjectsBytes) } },
  );
}

/** Throws INVALID_REQUEST if a request names no lease. */
function requiredLease(text: string): bigint {
  const lease = leaseOf("lease", text);
  if (lease > 0n) return lease;
  throw invalidRequest(
    "lease",
    "lease is 0, which is no lease. Give the id that Grant has returned.",
  );
}

/** Throws INVALID_REQUEST. */
function leasesOf({ leases }: KeepAliveRequest__Output): readonly bigint[] {
  if (leases.length === 0) throw invalidRequest("leases", "leases is empty. Name a lease.");
  return leases.map((lease) => requiredLease(lease));
}

/** Errors as statuses, each of them encoded once. */
function encoded(outcomes: readonly (number | Error)[]): readonly RenewalOutcome[] {
  const statuses = new Map<Error, Uint8Array>();
  return outcomes.map((outcome) => {
    if (typeof outcome === "number") return outcome;
    let bytes = statuses.get(outcome);
    if (bytes === undefined) {
      if (!(outcome instanceof WatchFanoutError)) throw outcome;
      bytes = encodedStatus(statusOf(outcome));
      statuses.set(outcome, bytes);
    }
    return bytes;
  });
}
