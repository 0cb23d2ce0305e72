import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { Gate } from "../../base/gate.ts";
import type { WaitBounds } from "../../base/wait.ts";
import type { Ledger } from "../kernel/ledger.ts";
import type { CallerLimits } from "../limits/caller-limits.ts";
import { callerOf } from "../limits/callers.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import { outOfRequestRoom } from "./refusals.ts";
import { RefusedRequest } from "./server-call.ts";

/** Requests of a caller that are handled at once in any case, so that other callers can't make all of its requests wait. */
const guaranteedPerCaller = 16;

/**
 * Requests of a caller up to which a connection of it without any does not wait, so that programs that share an identity
 * don't make all of each other's wait.
 */
const guaranteedWithConnections = 64;

/** Maximum size of the requests of one caller that wait, in bytes. */
const maxQueuedBytes = 32 * 1024 ** 2;

/** Memory of a request in addition to its bytes. */
const requestBytes = 1024;

/** What is bounded. */
export interface InFlightBounds {
  /** What error texts and metrics call the requests. */
  readonly kind: "reads" | "writes";
  /** Maximum number of requests at once. */
  readonly maxRequests: number;
  /** Maximum size of these requests, in bytes; one may exceed it. */
  readonly maxBytes: number;
}

/** The call of a request. */
export interface RequestingCall {
  /** Its caller, on its connection. */
  readonly owner: object;
  readonly connection: object;
  /** Size of the request, in bytes. */
  readonly requestBytes: number;
  readonly signal: AbortSignal;
}

/** What the requests of a server have in common. */
export interface InFlightContext {
  readonly clock: Clock;
  readonly limits: Pick<ServerLimits, "maxQueuedRequestsPerIdentity" | "maxQueueMs">;
  /** Requests that wait are charged here, to their connection. */
  readonly requestPool: Ledger;
  readonly callerLimits: CallerLimits;
}

/**
 * Bounds the requests that are handled at once: reads, which scan the cache or ask the store, and writes, each of which
 * holds its value until the store has responded. Beyond that requests wait, and callers take turns, whatever the number
 * of their connections. A caller with fewer than 16 requests does not wait, nor does a connection without any while its
 * caller has fewer than 64: so a caller that asks for much delays only itself.
 *
 * A request waits for room for its response first, so a client that does not read holds none of this. Waiting ones are
 * bounded per caller, in number, bytes and time, and charged to their connection like incomplete requests.
 */
export class RequestsInFlight {
  readonly #context: InFlightContext;
  readonly #bounds: InFlightBounds;
  readonly #gate: Gate;

  constructor(context: InFlightContext, bounds: InFlightBounds) {
    this.#context = context;
    this.#bounds = bounds;
    this.#gate = new Gate({
      concurrent: bounds.maxRequests,
      bytes: bounds.maxBytes,
      guaranteed: {
        perGroup: guaranteedPerCaller,
        perGroupOfIdleOwner: guaranteedWithConnections,
      },
    });
  }

  /** Number of requests that are handled. */
  get size(): number {
    return this.#gate.size;
  }

  /** Size of the requests that are handled, in bytes. */
  get bytes(): number {
    return this.#gate.bytes;
  }

  /** Number of requests that wait. */
  get queued(): number {
    return this.#gate.queued;
  }

  /**
   * Begins a request: now, which undefined means, or when it is its turn. Call `end` once it is handled, unless this
   * rejects: with a `WatchFanoutError` if the caller has too many waiting or this one has waited for too long, with a
   * `RefusedRequest` if it is evicted from the requests of its connection, and with the signal's reason.
   */
  begin(call: RequestingCall): Promise<void> | undefined {
    const { owner, connection, signal } = call;
    const bytes = call.requestBytes + requestBytes;
    if (this.#gate.enter(owner, bytes)) return undefined;
    signal.throwIfAborted();
    const refusal = this.#queueRefusal(owner, bytes);
    if (refusal !== undefined) return Promise.reject(refusal);
    const { clock, limits, requestPool } = this.#context;
    return this.#gate.wait(owner, bytes, {
      signal,
      deadline: { clock, ms: limits.maxQueueMs, expire: () => this.#refuseLate(owner) },
      charge: chargeOfRequest(requestPool, connection, bytes),
    });
  }

  /** A request that has begun is handled. */
  end({ owner, requestBytes: size }: Pick<RequestingCall, "owner" | "requestBytes">): void {
    this.#gate.leave(owner, size + requestBytes);
  }

  /** Why a request may not wait: too many of its caller do. */
  #queueRefusal(owner: object, bytes: number): WatchFanoutError | undefined {
    const { callerLimits, limits } = this.#context;
    const { kind } = this.#bounds;
    const group = groupOf(owner);
    const { count: usage, bytes: queuedBytes } = this.#gate.queuedOf(group);
    const limit = limits.maxQueuedRequestsPerIdentity;
    const isTooMany = usage >= limit;
    if (!isTooMany && (usage === 0 || queuedBytes + bytes <= maxQueuedBytes)) return undefined;
    return callerLimits.refusal(callerOf(owner), {
      ...{ name: "queued_requests", option: "max-queued-requests-per-identity" },
      ...(isTooMany ? { limit, usage } : { limit: maxQueuedBytes, usage: queuedBytes }),
      text: `has ${usage} ${kind} waiting, of ${queuedBytes} bytes`,
      advice: "Nothing was done. Make fewer at once.",
      retryMs: 1_000,
    });
  }

  #refuseLate(owner: object): never {
    const { callerLimits, limits } = this.#context;
    const { kind, maxRequests } = this.#bounds;
    callerLimits.count("queue_time", callerOf(owner));
    const usage = this.#gate.sizeOf(groupOf(owner));
    throw new WatchFanoutError(
      "OVERLOADED",
      `This replica has been too busy for this request for ${limits.maxQueueMs / 1_000} s (--max-queue-time): it ` +
        `handles at most ${maxRequests} ${kind} at once (--max-${kind}-in-flight), of which this caller has ` +
        `${usage}. Nothing was done. Try another replica, or this one later.`,
      {
        metadata: {
          limit_name: `max-${kind}-in-flight`,
          limit: String(maxRequests),
          usage: String(usage),
        },
      },
    );
  }
}

/**
 * Charges a connection with a request of it that waits, like with one that is incomplete. Its wait rejects with a
 * `RefusedRequest` if the charge is evicted.
 */
export function chargeOfRequest(
  requestPool: Ledger,
  connection: object,
  bytes: number,
): NonNullable<WaitBounds<void>["charge"]> {
  return (evict) =>
    requestPool.reserve(connection, bytes, () =>
      evict(new RefusedRequest(outOfRequestRoom(requestPool))),
    );
}
