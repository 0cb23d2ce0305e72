import { groupOf } from "../../base/fair-queue.ts";
import { Turns } from "../../base/turns.ts";
import { Authorizer } from "../../policy/authorizer.ts";
import { Compressor } from "../kernel/compressor.ts";
import { byteLowWaterMark, Ledger } from "../kernel/ledger.ts";
import { OpenStreams } from "../kernel/open-streams.ts";
import { CallerLimits } from "../limits/caller-limits.ts";
import { type Caller, Callers, CallOwner, callerOf } from "../limits/callers.ts";
import { GrantedLeases } from "../limits/granted-leases.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
import { SendBudget } from "../limits/send-budget.ts";
import { defaultServerLimits, type ServerLimits } from "../limits/server-limits.ts";
import { MemoryPressure } from "../pressure/memory-pressure.ts";
import { SlowStreams } from "../pressure/slow-streams.ts";
import { CallClosings } from "./call-closings.ts";
import { Credentials } from "./credentials.ts";
import { FullStore } from "./full-store.ts";
import { LeaseAuthorizer } from "./lease-authorizer.ts";
import { RequestsInFlight } from "./requests-in-flight.ts";
import type { ServiceOptions } from "./service-options.ts";
import { SlowClients } from "./slow-clients.ts";
import { StallDetector } from "./stall-detector.ts";
import { StreamOpenings } from "./stream-openings.ts";

/** Maximum size of the writes that the store is processing, in bytes. */
const maxWriteBytes = 64 * 1024 ** 2;

/** What bounds and ends the calls of a service. Each of them exists once for each server. */
type Kernel = ReturnType<typeof createKernel>;

/**
 * What a service has for all of its calls: what it was given, with defaults, and the kernel. The stages of a call and the
 * handlers of streams get it as it is.
 */
export interface ServiceContext extends ServiceOptions, Kernel {
  readonly limits: ServerLimits;
  readonly authorizer: Authorizer;
  readonly hasOwnServices: boolean;
  readonly leaseAuthorizer: LeaseAuthorizer;
  readonly random: () => number;
  /** Counts clients that are stopped at the level of HTTP/2. Undefined: the connections are not this service's. */
  readonly defences: Pick<Http2Defences, "count"> | undefined;
}

/**
 * What the methods with one response may know of it: what is served, and what callers may know of that. They get the rest
 * with their call (`UnaryCall`).
 */
export type UnaryContext = Pick<
  ServiceContext,
  | ("resources" | "store" | "codecs" | "etcdKeys" | "upstream" | "authorizer" | "compressor")
  | "leaseAuthorizer"
>;

/** Makes what a service has for its calls, empty. */
export function createServiceContext(
  options: ServiceOptions,
  defences: Http2Defences | undefined,
): ServiceContext {
  const { authorizer = new Authorizer(), hasOwnServices = true, random = Math.random } = options;
  const limits = { ...defaultServerLimits, ...options.limits };
  const leases = options.store?.leases;
  const leaseAuthorizer = new LeaseAuthorizer({ ...options, leases, authorizer });
  const given = { ...options, limits, authorizer, hasOwnServices, leaseAuthorizer, random };
  return { ...given, ...createKernel(options, limits), defences };
}

/** Makes what bounds a server's calls together. `Authentication` and `Connections` bound credentials and connections. */
function createKernel(
  { clock, logger, now = Date.now, memoryGauges: gauges = [], compression }: ServiceOptions,
  limits: ServerLimits,
) {
  const callerLimits = new CallerLimits(clock, new Callers(clock, limits), limits, logger);
  const ownerOf = (holder: object): object =>
    holder instanceof CallOwner ? holder : callerLimits.callers.expectedOn(holder);
  const groupOfHolder = (holder: object): object => groupOf(ownerOf(holder));
  const requestPool = new Ledger(
    {
      max: limits.maxUnreadBytes,
      maxPerOwner: limits.maxUnreadBytesPerConnection,
      lowWaterMark: byteLowWaterMark,
    },
    groupOfHolder,
  );
  const retainedRequests = new Ledger(
    {
      max: limits.maxRetainedRequestBytes,
      maxPerOwner: limits.maxRetainedRequestBytesPerConnection,
      lowWaterMark: byteLowWaterMark,
    },
    groupOfHolder,
  );
  const incompleteCalls = new Ledger<Caller>({
    max: limits.maxIncompleteCalls,
    maxPerOwner: limits.maxIncompleteCallsPerCaller,
  });
  const sendBounds = {
    maxBytes: limits.maxUnsentBytes,
    maxBytesPerConnection: limits.maxUnsentBytesPerConnection,
  };
  const sendBudget = new SendBudget(clock, sendBounds, ownerOf);
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
  const credentials = new Credentials(clock, now, streams, limits.endFlushMs);
  const slowStreams = new SlowStreams(clock, streams, sendBudget);
  const { maxReadsInFlight, maxWritesInFlight } = limits;
  const waiting = { clock, limits, callerLimits, requestPool };
  return {
    /** Knows the caller of each call, and limits what each caller may have. */
    callerLimits,
    /** The leases that were granted, by caller. */
    grantedLeases: new GrantedLeases(clock, callerLimits),
    /** Open streams. */
    streams,
    /** Knows which credentials are no longer valid, and ends their streams. */
    credentials,
    /** Requests that have not arrived completely, are not inflated, or are not handled yet, in bytes, by connection. */
    requestPool,
    /**
     * Calls whose request has not arrived completely, by caller: a client opens one with some tens of bytes, here it takes
     * 7 KiB.
     */
    incompleteCalls,
    /**
     * Parts of requests that calls retain while they wait for a time slice and while their streams are open, in bytes, by
     * connection.
     */
    retainedRequests,
    /** Responses that clients have not accepted, by connection. */
    sendBudget,
    /** Compresses what responses share. Undefined: nothing is compressed. */
    compressor: compression && new Compressor(clock, compression),
    /** Ends the streams whose client does not accept the message that is outstanding. */
    stallDetector: new StallDetector(clock, limits.responseFlushMs),
    /** Bounds the requests that are handled at once. */
    inFlight: {
      reads: new RequestsInFlight(waiting, {
        ...{ kind: "reads", maxRequests: maxReadsInFlight, maxBytes: Infinity },
      }),
      writes: new RequestsInFlight(waiting, {
        ...{ kind: "writes", maxRequests: maxWritesInFlight, maxBytes: maxWriteBytes },
      }),
    },
    /** Opens watches in time slices, by caller. */
    streamOpenings: new StreamOpenings(clock, retainedRequests),
    /** Does the work of unary calls that takes long, and converts JSON, in time slices, by caller. */
    timeSlices: new Turns(clock),
    /** Releases what ended calls hold, in time slices. */
    callClosings: new CallClosings(clock),
    /** Refuses and ends calls while memory is short. */
    memoryPressure: new MemoryPressure({
      ...{ clock, logger, gauges, slowStreams, retained: retainedRequests },
    }),
    /** Counts calls that end since their client accepts too little. */
    slowClients: new SlowClients(clock, logger),
    /** Counts writes that the store refuses because it is full. */
    fullStore: new FullStore(clock, logger),
  };
}

/** When a new stream reaches its maximum age, in the clock's milliseconds; undefined: never. Jitter spreads those that began together. */
export function expiryOf({ clock, limits, random }: ServiceContext): number | undefined {
  const { maxStreamAgeMs } = limits;
  return maxStreamAgeMs === 0 ? undefined : clock.now() + maxStreamAgeMs * (0.8 + 0.2 * random());
}
