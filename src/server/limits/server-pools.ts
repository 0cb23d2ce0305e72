import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { groupOf } from "../../base/fair-queue.ts";
import { byteLowWaterMark, Ledger } from "../kernel/ledger.ts";
import { OpenStreams } from "../kernel/open-streams.ts";
import { StallDetector } from "../kernel/stall-detector.ts";
import { CallerLimits, type CallerStats } from "./caller-limits.ts";
import { type Caller, Callers, CallOwner, callerOf } from "./callers.ts";
import { Credentials } from "./credentials.ts";
import { SendBudget } from "./send-budget.ts";
import type { ServerLimits } from "./server-limits.ts";

/** A bounded pool of memory. */
export interface PoolStats {
  /** Held now, in bytes. */
  readonly bytes: number;
  /** Number of calls that have been ended to make room. */
  readonly evictions: number;
}

/** The numbers of pools as they are when they are read: bytes of the first one, evictions of all. */
export function statsOf(pool: Ledger, ...others: readonly Pick<Ledger, "evictions">[]): PoolStats {
  return {
    get bytes() {
      return pool.total;
    },
    get evictions() {
      return others.reduce((sum, { evictions }) => sum + evictions, pool.evictions);
    },
  };
}

/** What a server holds for its clients. */
export interface HeldStats {
  /** Open connections. */
  readonly connections: number;
  /** Open streams: watches, health watches, reflection, calls of the etcd API. */
  readonly streams: number;
  /** Requests that have not arrived completely, or are not handled yet. */
  readonly requests: PoolStats;
  /** Parts of requests that streams and open reads retain. */
  readonly retained: PoolStats;
  /** Responses and watch frames that clients have not accepted. Memory that several share counts once. */
  readonly unsent: PoolStats;
  /** What callers use, and what was refused to them. */
  readonly callers: CallerStats;
}

/** Everything that a server bounds across its connections. */
export interface ServerPools {
  /** Requests that have not arrived completely, are not inflated, or are not handled yet. */
  readonly requests: Ledger;
  /** Calls whose request has not arrived completely: a client opens one with some tens of bytes, here it takes 7 KiB. */
  readonly incompleteCalls: Ledger<Caller>;
  /** Parts of requests that calls retain while they wait for a time slice and while their streams are open. */
  readonly retainedRequests: Ledger;
  /** Responses that clients have not accepted. */
  readonly sendBudget: SendBudget;
  /** Open streams. */
  readonly streams: OpenStreams;
  /** The callers, and what each may have. */
  readonly callerLimits: CallerLimits;
  /** Ends streams whose credential is no longer valid. */
  readonly credentials: Credentials;
  /** Ends streams whose client accepts nothing. */
  readonly stallDetector: StallDetector;
}

/** Makes the empty pools of a server. `now` returns the time of day, in milliseconds since the epoch. */
export function createServerPools(
  clock: Clock,
  limits: ServerLimits,
  now: () => number,
  logger: Logger,
): ServerPools {
  const callers = new Callers(clock, limits);
  const callerLimits = new CallerLimits(clock, callers, limits, logger);
  const ownerOf = (holder: object): object =>
    holder instanceof CallOwner ? holder : callers.expectedOn(holder);
  const streams = new OpenStreams(limits.maxStreams, {
    refusal: (owner) => {
      const caller = callerOf(owner);
      return caller && callerLimits.streamRefusal(caller);
    },
    opened: ({ identity, owner }) => {
      const caller = callerOf(owner);
      if (caller !== undefined) caller.streams++;
      credentials.opened(identity);
    },
    closed: ({ owner }) => {
      const caller = callerOf(owner);
      if (caller !== undefined) caller.streams--;
    },
  });
  const credentials = new Credentials(clock, now, streams);
  const groupOfHolder = (holder: object): object => groupOf(ownerOf(holder));
  return {
    callerLimits,
    requests: new Ledger(
      {
        max: limits.maxUnreadBytes,
        maxPerOwner: limits.maxUnreadBytesPerConnection,
        lowWaterMark: byteLowWaterMark,
      },
      groupOfHolder,
    ),
    incompleteCalls: new Ledger({
      max: limits.maxIncompleteCalls,
      maxPerOwner: limits.maxIncompleteCallsPerCaller,
    }),
    retainedRequests: new Ledger(
      {
        max: limits.maxRetainedRequestBytes,
        maxPerOwner: limits.maxRetainedRequestBytesPerConnection,
        lowWaterMark: byteLowWaterMark,
      },
      groupOfHolder,
    ),
    sendBudget: new SendBudget(
      clock,
      {
        maxBytes: limits.maxUnsentBytes,
        maxBytesPerConnection: limits.maxUnsentBytesPerConnection,
      },
      ownerOf,
    ),
    ...{ streams, credentials },
    stallDetector: new StallDetector(clock, limits.responseFlushMs),
  };
}
