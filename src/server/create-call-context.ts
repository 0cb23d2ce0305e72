import { tooManyRequestBytes } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { Authorizer } from "../policy/authorizer.ts";
import { CallClosings } from "./calls/call-closings.ts";
import type { CallContext } from "./calls/call-context.ts";
import { RequestsInFlight } from "./calls/requests-in-flight.ts";
import { StreamOpenings } from "./calls/stream-openings.ts";
import type { ServerLimits } from "./limits/server-limits.ts";
import type { ServerPools } from "./limits/server-pools.ts";
import type { ServiceOptions } from "./server-options.ts";

/** Maximum size of the writes that the store is processing, in bytes. */
const maxWriteBytes = 64 * 1024 ** 2;

/** What all calls of the server share. */
export function createCallContext(
  options: ServiceOptions,
  limits: ServerLimits,
  pools: ServerPools,
  scheduler: TimeSliceScheduler,
): CallContext {
  const { resources, clock, logger, observer, audit, random = Math.random } = options;
  const { retainedRequests, callerLimits } = pools;
  const { maxReadsInFlight, maxWritesInFlight, maxUnreadBytesPerConnection } = limits;
  const waiting = {
    ...{ clock, limits, callerLimits, maxUnreadBytesPerConnection },
    requestPool: pools.requests,
  };
  const tooMuchRetained = () => tooManyRequestBytes(limits.maxRetainedRequestBytesPerConnection);
  return {
    resources,
    instanceId: options.instanceId,
    upstream: options.upstream,
    codecs: options.codecs,
    clock,
    logger,
    observer,
    tracer: options.tracer,
    authorizer: options.authorizer ?? new Authorizer(),
    credentials: pools.authenticatedStreams,
    audit,
    endFlushMs: limits.endFlushMs,
    responseFlushMs: limits.responseFlushMs,
    requestMs: limits.requestMs,
    maxRequestBytes: limits.maxRequestBytes,
    requestPool: pools.requests,
    incompleteCalls: pools.incompleteCalls,
    maxUnreadBytesPerConnection,
    sendBudget: pools.sendBudget,
    stallDetector: pools.stallDetector,
    callerLimits,
    inFlight: {
      reads: new RequestsInFlight(waiting, {
        ...{ kind: "reads", maxRequests: maxReadsInFlight, maxBytes: Infinity },
      }),
      writes: new RequestsInFlight(waiting, {
        ...{ kind: "writes", maxRequests: maxWritesInFlight, maxBytes: maxWriteBytes },
      }),
    },
    streams: pools.streams,
    callClosings: new CallClosings(clock),
    streamOpenings: new StreamOpenings(clock, scheduler, retainedRequests, tooMuchRetained),
    parsingSelectors: new TimeSliceScheduler(clock),
    retainedRequests,
    tooMuchRetained,
    maxStreamAgeMs: limits.maxStreamAgeMs,
    random,
  };
}
