import { pause } from "../../../base/clock.ts";
import { hasReason, invalidRequest, WatchFanoutError } from "../../../base/errors.ts";
import type { TimeSlicedWork } from "../../../base/event-loop-turns.ts";
import { Turns } from "../../../base/turns.ts";
import { draining, expired } from "../../../cacher/request/errors.ts";
import { permissionDenied } from "../../../policy/access.ts";
import type { Leases } from "../../../storage/store.ts";
import { frameOf } from "../../../wire/encode.ts";
import { encodedStatus, statusOf } from "../../../wire/errors.ts";
import type { KeepAliveRequest__Output } from "../../../wire/generated/watchfanout/v1/KeepAliveRequest.ts";
import { encodeRenewals, type RenewalOutcome } from "../../../wire/renewals.ts";
import { leaseService } from "../../../wire/services.ts";
import { auditDenied } from "../../calls/audit.ts";
import { keepingAlive, leaseAccess } from "../../calls/lease-authorizer.ts";
import { type BidiMethod, decoderOf, methodOf } from "../../calls/methods.ts";
import { endingOf, tooMuchRetained } from "../../calls/refusals.ts";
import { admitStream, inTurn } from "../../calls/request-streams.ts";
import type { NextRequest, ServerCall } from "../../calls/server-call.ts";
import { expiryOf, type ServiceContext } from "../../calls/service-context.ts";
import { Rounds } from "../../kernel/rounds.ts";
import { requiredLease } from "../parse-requests.ts";
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

/** The method KeepAlive of watchfanout.v1.LeaseService, and its open streams. */
export class KeepAliveMethod {
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

  /** How it is served. */
  get method(): BidiMethod {
    return {
      name: keepAliveMethod,
      maxRequestBytes,
      mayIdle: true,
      converse: (call, next) => void this.#converse(call, next),
    };
  }

  /** Ends the streams with DRAINING. */
  drain(): void {
    for (const stream of this.#streams) stream.endSoon(draining());
  }

  async #converse(call: ServerCall, next: NextRequest): Promise<void> {
    const context = this.#context;
    if (!admitStream(call, context)) return;
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
        await inTurn(this.#requests, call, async () => {
          if (!stream.isOver) this.#handle(call, stream, message);
        });
        await stream.room();
      }
    } catch (error) {
      if (stream.isOver) return;
      stream.end(endingOf(error, keepAliveMethod, context.logger, call));
    }
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
      const access = leaseAccess("put", "");
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
        stream.end(endingOf(error, keepAliveMethod, context.logger, call));
      },
    );
  }

  async #renew(
    call: ServerCall,
    stream: KeepAliveStream,
    leases: readonly bigint[],
  ): Promise<readonly RenewalOutcome[]> {
    const { signal } = stream;
    const outcomes = this.#context.authorizer.isLimited(call.identity)
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
