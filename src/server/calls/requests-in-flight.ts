import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { Counts, groupOf, Rotation } from "../../base/rotation.ts";
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
  /** The pool's bound per connection, in bytes, for error texts. */
  readonly maxUnreadBytesPerConnection: number;
  readonly callerLimits: CallerLimits;
}

interface Waiting {
  readonly bytes: number;
  readonly wake: () => void;
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
  readonly #waiting = new Rotation<Set<Waiting>>();
  readonly #queued = new Counts();
  readonly #queuedBytes = new Counts();
  readonly #ofCaller = new Counts();
  readonly #ofOwner = new Counts();
  #size = 0;
  #bytes = 0;
  #queueSize = 0;

  constructor(context: InFlightContext, bounds: InFlightBounds) {
    this.#context = context;
    this.#bounds = bounds;
  }

  /** Number of requests that are handled. */
  get size(): number {
    return this.#size;
  }

  /** Size of the requests that are handled, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of requests that wait. */
  get queued(): number {
    return this.#queueSize;
  }

  /**
   * Begins a request: now, which undefined means, or when it is its turn. Call `end` once it is handled, unless this
   * rejects: with a `WatchFanoutError` if the caller has too many waiting or this one has waited for too long, with a
   * `RefusedRequest` if it is evicted from the requests of its connection, and with the signal's reason.
   */
  begin(call: RequestingCall): Promise<void> | undefined {
    const { owner } = call;
    const bytes = call.requestBytes + requestBytes;
    const isFirst = this.#waiting.get(owner) === undefined;
    if ((this.#hasRoom && this.#waiting.size === 0) || (isFirst && this.#isGuaranteed(owner))) {
      this.#count(owner, 1, bytes);
      return undefined;
    }
    return this.#turnOf(call, bytes);
  }

  /** A request that has begun is handled. */
  end({ owner, requestBytes: size }: Pick<RequestingCall, "owner" | "requestBytes">): void {
    this.#count(owner, -1, -size - requestBytes);
    while (this.#hasRoom) if (!this.#wake(this.#waiting.next())) return;
    if (this.#isGuaranteed(owner)) this.#wake(this.#waiting.nextIn(groupOf(owner)));
  }

  get #hasRoom(): boolean {
    return this.#size < this.#bounds.maxRequests && this.#bytes < this.#bounds.maxBytes;
  }

  /** Whether a request of the owner need not wait for others. */
  #isGuaranteed(owner: object): boolean {
    if (this.#bytes >= this.#bounds.maxBytes) return false;
    const requests = this.#ofCaller.of(groupOf(owner));
    if (requests < guaranteedPerCaller) return true;
    return requests < guaranteedWithConnections && this.#ofOwner.of(owner) === 0;
  }

  #count(owner: object, by: 1 | -1, bytes: number): void {
    this.#size += by;
    this.#bytes += bytes;
    this.#ofCaller.add(groupOf(owner), by);
    this.#ofOwner.add(owner, by);
  }

  /** Begins the first request of an owner that waits. Returns whether there was one. */
  #wake(next: readonly [owner: object, waiting: Set<Waiting>] | undefined): boolean {
    if (next === undefined) return false;
    const [owner, waiting] = next;
    const [first] = waiting;
    if (first === undefined) return false;
    this.#waiting.served(owner);
    this.#count(owner, 1, first.bytes);
    first.wake();
    return true;
  }

  /** Waits for room, then counts the request. */
  #turnOf(call: RequestingCall, bytes: number): Promise<void> {
    const { clock, requestPool, maxUnreadBytesPerConnection, limits } = this.#context;
    const { owner, connection, signal } = call;
    signal.throwIfAborted();
    const refusal = this.#queueRefusal(owner, bytes);
    if (refusal !== undefined) return Promise.reject(refusal);
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        this.#leave(owner, waiting);
        signal.removeEventListener("abort", onAbort);
        timer.cancel();
        reservation.release();
        settle();
      };
      const waiting: Waiting = { bytes, wake: () => end(resolve) };
      const onAbort = (): void => end(() => reject(signal.reason));
      const timer = clock.setTimeout(
        () => end(() => reject(this.#tooLate(owner))),
        limits.maxQueueMs,
      );
      const reservation = requestPool.reserve(connection, 0, () =>
        end(() => reject(new RefusedRequest(outOfRequestRoom(maxUnreadBytesPerConnection)))),
      );
      this.#join(owner, waiting);
      signal.addEventListener("abort", onAbort);
      reservation.resize(bytes);
    });
  }

  #join(owner: object, waiting: Waiting): void {
    const others = this.#waiting.get(owner);
    if (others === undefined) this.#waiting.add(owner, new Set([waiting]));
    else others.add(waiting);
    this.#queueSize++;
    this.#queued.add(groupOf(owner), 1);
    this.#queuedBytes.add(groupOf(owner), waiting.bytes);
  }

  /** Idempotent. */
  #leave(owner: object, waiting: Waiting): void {
    const others = this.#waiting.get(owner);
    if (others?.delete(waiting) !== true) return;
    if (others.size === 0) this.#waiting.delete(owner);
    this.#queueSize--;
    this.#queued.add(groupOf(owner), -1);
    this.#queuedBytes.add(groupOf(owner), -waiting.bytes);
  }

  /** Why a request may not wait: too many of its caller do. */
  #queueRefusal(owner: object, bytes: number): WatchFanoutError | undefined {
    const { callerLimits, limits } = this.#context;
    const { kind } = this.#bounds;
    const group = groupOf(owner);
    const usage = this.#queued.of(group);
    const limit = limits.maxQueuedRequestsPerIdentity;
    const queuedBytes = this.#queuedBytes.of(group);
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

  #tooLate(owner: object): WatchFanoutError {
    const { callerLimits, limits } = this.#context;
    const { kind, maxRequests } = this.#bounds;
    callerLimits.count("queue_time", callerOf(owner));
    const usage = this.#ofCaller.of(groupOf(owner));
    return new WatchFanoutError(
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
