import type { Logger } from "pino";
import type { Clock, Timer } from "../../base/clock.ts";
import { type Reason, WatchFanoutError } from "../../base/errors.ts";
import { runInTimeSlices } from "../../base/event-loop-turns.ts";
import { FairQueue } from "../../base/fair-queue.ts";
import { LineLimit } from "../../base/logger.ts";
import { Rate } from "../../base/rate.ts";
import type { Caller, Callers, CallOwner } from "./callers.ts";
import type { ServerLimits } from "./server-limits.ts";

/** The limits of callers, as metrics name them. */
export const callerLimitNames = [
  ...(["connections", "streams", "requests", "queued_requests", "queue_time"] as const),
  ...(["watch_rate", "send_rate", "cancel_rate"] as const),
  ...(["leases", "lease_rate"] as const),
] as const;

export type CallerLimitName = (typeof callerLimitNames)[number];

/** The limits that this file and its users apply. Numbers per second are rates; 0: no limit. */
export type CallerBounds = Pick<
  ServerLimits,
  | "maxConnectionsPerIdentity"
  | "maxStreamsPerIdentity"
  | "maxRequestsPerIdentity"
  | "maxWatchRatePerIdentity"
  | "maxWatchRate"
  | "maxLeases"
  | "maxLeasesPerIdentity"
  | "maxSendRate"
  | "maxCancelsPerSecond"
  | "maxStreamsPerConnection"
>;

/** Minimum time between two lines about the same limit, in milliseconds. */
const logIntervalMs = 10_000;

/** What a caller has reached. */
export interface ReachedLimit {
  readonly name: CallerLimitName;
  /** The option that sets it, without dashes. */
  readonly option: string;
  readonly limit: number;
  /** What the caller uses of it. Rates: what it may use. */
  readonly usage: number;
  /** Says what the caller has, as the rest of a sentence that begins with the caller. */
  readonly text: string;
  /** What to do. */
  readonly advice: string;
  /** When a retry may succeed, in milliseconds; undefined: not known. */
  readonly retryMs?: number | undefined;
  /** Default: TOO_MANY_STREAMS. */
  readonly reason?: Reason;
}

/** What callers use now. */
export interface CallerStats {
  /** Callers that are known: those with connections, streams or requests, and recent ones. */
  readonly callers: number;
  /** The most that one caller has, of connections, streams and requests. */
  readonly most: Readonly<Record<"connections" | "streams" | "requests" | "leases", number>>;
  /** Calls refused so far, by limit. */
  readonly refused: ReadonlyMap<CallerLimitName, number>;
  /** Streams that wait because more was sent than a rate allows. */
  readonly pacedStreams: number;
}

/**
 * Limits what each caller may have at once, and how fast, and counts refusals. A refused call has had no effect. The
 * limits of the process are shared fairly between callers where calls wait (`FairQueue`, `Turns`), and the
 * caller that has most makes room (`OpenStreams`, `Connections`).
 */
export class CallerLimits {
  readonly callers: Callers;
  /** Delays the responses of streams whose caller is above its rate. */
  readonly sendPacing: SendPacing;
  readonly #bounds: CallerBounds;
  readonly #watchRate: Rate | undefined;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #lines: ReadonlyMap<CallerLimitName, LineLimit>;
  readonly #refused = new Map<CallerLimitName, number>(callerLimitNames.map((name) => [name, 0]));

  constructor(clock: Clock, callers: Callers, bounds: CallerBounds, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
    this.#lines = new Map(
      callerLimitNames.map((name) => [name, new LineLimit(clock, logIntervalMs)]),
    );
    this.callers = callers;
    this.#bounds = bounds;
    this.sendPacing = new SendPacing(clock, bounds.maxSendRate);
    if (bounds.maxWatchRate > 0) this.#watchRate = new Rate(clock, bounds.maxWatchRate);
  }

  /** Why no call may be made on the connection of an owner: its caller has too many; undefined: the call may be made. */
  connectionRefusal(owner: CallOwner): WatchFanoutError | undefined {
    if (owner.isAdmitted) return undefined;
    const { maxConnectionsPerIdentity: limit } = this.#bounds;
    const { caller } = owner;
    if (limit > 0 && caller.connections >= limit && !this.callers.isCounted(owner)) {
      return this.refusal(caller, {
        ...{ name: "connections", option: "max-connections-per-identity", limit },
        usage: caller.connections,
        text: `has ${caller.connections} connections`,
        advice: "Use those that are open, or try another replica.",
      });
    }
    this.callers.count(owner);
    owner.isAdmitted = true;
    return undefined;
  }

  /** Why the caller may not open a further stream; undefined: it may. */
  streamRefusal(caller: Caller): WatchFanoutError | undefined {
    const { maxStreamsPerIdentity: limit } = this.#bounds;
    if (limit === 0 || caller.streams < limit) return undefined;
    return this.refusal(caller, {
      ...{ name: "streams", option: "max-streams-per-identity", limit, usage: caller.streams },
      text: `has ${caller.streams} streams open`,
      advice: "Close some, or try another replica.",
    });
  }

  /** Why the caller may not make a further request; undefined: it may. `isRead`: it may have a large response. */
  requestRefusal(caller: Caller, isRead: boolean): WatchFanoutError | undefined {
    const { maxRequestsPerIdentity: limit } = this.#bounds;
    if (limit > 0 && caller.requests >= limit) {
      return this.refusal(caller, {
        ...{ name: "requests", option: "max-requests-per-identity", limit, usage: caller.requests },
        text: `has ${caller.requests} requests in progress`,
        advice: "Make fewer at once.",
        retryMs: 1_000,
      });
    }
    return isRead ? this.sendRefusal(caller) : undefined;
  }

  /** Why the caller may not open a watch now; undefined: it may, and that is counted. */
  watchRefusal(caller: Caller): WatchFanoutError | undefined {
    const refusal = this.sendRefusal(caller);
    if (refusal !== undefined) return refusal;
    const own = caller.watchRate;
    if (own?.take() === false) return this.#tooFast(caller, own, "-per-identity");
    const all = this.#watchRate;
    if (all?.take() === false) return this.#tooFast(undefined, all, "");
    return undefined;
  }

  /** Why the caller may not be granted a lease now; undefined: it may, and that is counted. `granted`: to all callers. */
  leaseRefusal(caller: Caller, granted: number): WatchFanoutError | undefined {
    const { maxLeases, maxLeasesPerIdentity: limit } = this.#bounds;
    const reached = { name: "leases", reason: "TOO_MANY_LEASES" } as const;
    const advice = "Revoke some, or attach several objects to one lease.";
    if (limit > 0 && caller.leases >= limit) {
      return this.refusal(caller, {
        ...{ ...reached, option: "max-leases-per-identity", limit, usage: caller.leases, advice },
        text: `has ${caller.leases} leases that this server has granted`,
      });
    }
    if (granted >= maxLeases) {
      return this.refusal(undefined, {
        ...{ ...reached, option: "max-leases", limit: maxLeases, usage: granted, advice },
        text: `has granted ${granted} leases that have not ended`,
      });
    }
    const rate = caller.grantRate;
    if (rate === undefined || rate.take()) return undefined;
    return this.refusal(caller, {
      ...{ ...reached, name: "lease_rate", option: "max-lease-grant-rate-per-identity" },
      ...{ limit: rate.perSecond, usage: rate.perSecond, retryMs: rate.waitMs(1) },
      text: "is granted leases faster than that, per second",
      advice: "Grant fewer at once, or try another replica.",
    });
  }

  /** Why nothing may be read for the caller now: more was sent than its rate allows; undefined: it may read. */
  sendRefusal(caller: Caller): WatchFanoutError | undefined {
    const exceeded = this.sendPacing.exceededBy(caller);
    if (exceeded === undefined) return undefined;
    const { perSecond: limit } = exceeded;
    const isOwn = exceeded === caller.sendRate;
    return this.refusal(isOwn ? caller : undefined, {
      ...{ name: "send_rate", option: `max-send-rate${isOwn ? "-per-identity" : ""}`, limit },
      usage: limit,
      text: "was sent responses faster than that",
      advice: "Read less, or try another replica.",
      retryMs: exceeded.waitMs(0),
    });
  }

  /**
   * The caller has cancelled a call on the connection of a proxy. It may cancel as fast as on a connection of its own; above
   * that its calls are refused (`cancelRefusal`), since the connection can't be closed, which others share.
   */
  cancelled(caller: Caller): void {
    const { maxCancelsPerSecond, maxStreamsPerConnection } = this.#bounds;
    caller.cancelRate ??= new Rate(this.#clock, maxCancelsPerSecond, maxStreamsPerConnection);
    // Also if none of its calls gets as far as to be refused.
    if (!caller.cancelRate.take()) this.#log("cancel_rate", caller);
  }

  /** Why the caller may make no call now: it cancels too many; undefined: it may. */
  cancelRefusal(caller: Caller): WatchFanoutError | undefined {
    const { cancelRate } = caller;
    const retryMs = cancelRate?.waitMs(1) ?? 0;
    if (cancelRate === undefined || retryMs === 0) return undefined;
    const { perSecond: limit } = cancelRate;
    this.count("cancel_rate", caller);
    const title = caller.title[0]?.toUpperCase() + caller.title.slice(1);
    return new WatchFanoutError(
      "TOO_MANY_STREAMS",
      `${title} cancels more than ${limit} calls per second, on connections that others share. Nothing was done. ` +
        "Cancel fewer calls.",
      { metadata: { limit_name: "cancels", limit: String(limit), usage: String(limit) }, retryMs },
    );
  }

  /** Counts a refusal, and logs it, one line for each limit in 10 s: metrics do not name callers. */
  count(name: CallerLimitName, caller: Caller | undefined): void {
    this.#refused.set(name, (this.#refused.get(name) ?? 0) + 1);
    this.#log(name, caller);
  }

  #log(name: CallerLimitName, caller: Caller | undefined): void {
    const suppressed = this.#lines.get(name)?.admit();
    if (suppressed === undefined) return;
    const fields = suppressed === 0 ? {} : { suppressedOfLimit: suppressed };
    const who = caller?.title ?? "all callers together";
    this.#logger.warn({ limit: name, caller: who, ...fields }, "a caller has reached a limit");
  }

  /** Counts a refusal, and makes the error of it. `caller`: undefined if all callers together have reached the limit. */
  refusal(caller: Caller | undefined, reached: ReachedLimit): WatchFanoutError {
    const { name, option, limit, usage, text, advice, retryMs } = reached;
    const { reason = "TOO_MANY_STREAMS" } = reached;
    this.count(name, caller);
    const who = caller === undefined ? "this server" : caller.title;
    const message = `${who} ${text}; the maximum is ${limit} (--${option}). ${advice}`;
    return new WatchFanoutError(reason, message[0]?.toUpperCase() + message.slice(1), {
      metadata: { limit_name: option, limit: String(limit), usage: String(usage) },
      retryMs,
    });
  }

  stats(): CallerStats {
    const most = { connections: 0, streams: 0, requests: 0, leases: 0 };
    for (const { connections, streams, requests, leases } of this.callers) {
      most.connections = Math.max(most.connections, connections);
      most.streams = Math.max(most.streams, streams);
      most.requests = Math.max(most.requests, requests);
      most.leases = Math.max(most.leases, leases);
    }
    const { size: pacedStreams } = this.sendPacing;
    return { callers: this.callers.size, most, refused: this.#refused, pacedStreams };
  }

  #tooFast(caller: Caller | undefined, rate: Rate, suffix: string): WatchFanoutError {
    const { perSecond } = rate;
    return this.refusal(caller, {
      ...{ name: "watch_rate", option: `max-watch-rate${suffix}`, limit: perSecond },
      usage: perSecond,
      text: "opens watches faster than that, per second",
      advice: "Open fewer at once, or try another replica.",
      retryMs: rate.waitMs(1),
    });
  }
}

/** How often streams that wait are looked at, in milliseconds. */
const intervalMs = 50;

/**
 * Bounds the bytes that are sent per second, of each caller and of all. Responses and batches are charged when they are
 * built, whole: nothing is counted per event. What is built is sent; while more was sent than a rate allows, the next
 * batches of streams are not read, and wait here. A stream that waits for long falls behind like one whose client is slow.
 */
export class SendPacing {
  readonly #clock: Clock;
  readonly #rate: Rate | undefined;
  /** The streams that wait. */
  readonly #waiting = new FairQueue<() => void>();
  #timer: Timer | undefined;

  /** `maxSendRate`: of all callers together, in bytes per second; 0: no limit. */
  constructor(clock: Clock, maxSendRate: number) {
    this.#clock = clock;
    this.#rate = maxSendRate === 0 ? undefined : new Rate(clock, maxSendRate);
  }

  /** Number of streams that wait. */
  get size(): number {
    return this.#waiting.size;
  }

  /** Counts what is sent to a caller, in bytes. */
  charge({ caller }: CallOwner, bytes: number): void {
    caller.sendRate?.charge(bytes);
    this.#rate?.charge(bytes);
  }

  /** The rate that is exceeded; undefined: none, so more may be sent to the caller. */
  exceededBy({ sendRate }: Caller): Rate | undefined {
    if (sendRate?.isExceeded === true) return sendRate;
    return this.#rate?.isExceeded === true ? this.#rate : undefined;
  }

  /** Calls `resume` when further bytes may be sent to the owner, callers in rotation. The returned function stops the wait. */
  wait(owner: CallOwner, resume: () => void): () => void {
    this.#waiting.push(owner, resume);
    this.#setTimer();
    return () => this.#waiting.delete(owner, resume);
  }

  #setTimer(): void {
    this.#timer ??= this.#clock.setTimeout(
      () => runInTimeSlices(this.#clock, this.#resumeAll()),
      intervalMs,
    );
  }

  *#resumeAll(): Generator<void, void, void> {
    for (;;) {
      const next = this.#waiting.shift(this.#maySend);
      if (next === undefined) break;
      const [, resume] = next;
      resume();
      yield;
    }
    this.#timer = undefined;
    if (this.#waiting.size > 0) this.#setTimer();
  }

  readonly #maySend = (group: object): boolean => {
    const caller = group as Caller;
    return this.exceededBy(caller) === undefined;
  };
}
