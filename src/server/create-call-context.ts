import { tooManyRequestBytes } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { Authorizer } from "../policy/authorizer.ts";
import { CallClosings } from "./calls/call-closings.ts";
import type { CallContext } from "./calls/call-context.ts";
import { StreamOpenings } from "./calls/stream-openings.ts";
import type { ServerLimits } from "./limits/server-limits.ts";
import type { ServerPools } from "./limits/server-pools.ts";
import type { ServerOptions } from "./server-options.ts";

/** What all calls of the server share. */
export function createCallContext(
  options: ServerOptions,
  limits: ServerLimits,
  pools: ServerPools,
  scheduler: TimeSliceScheduler,
): CallContext {
  const { resources, clock, logger, observer, audit, random = Math.random } = options;
  const { retainedRequests } = pools;
  const tooMuchRetained = () => tooManyRequestBytes(limits.maxRetainedRequestBytesPerConnection);
  return {
    resources,
    instanceId: options.instanceId,
    upstream: options.upstream,
    codecs: options.codecs,
    clock,
    logger,
    observer,
    authorizer: options.authorizer ?? new Authorizer(),
    credentials: pools.authenticatedStreams,
    audit,
    endFlushMs: limits.endFlushMs,
    responseFlushMs: limits.responseFlushMs,
    requestMs: limits.requestMs,
    maxRequestBytes: limits.maxRequestBytes,
    requestPool: pools.requests,
    maxUnreadBytesPerConnection: limits.maxUnreadBytesPerConnection,
    sendBudget: pools.sendBudget,
    stallDetector: pools.stallDetector,
    streams: pools.streams,
    callClosings: new CallClosings(clock),
    streamOpenings: new StreamOpenings(scheduler, retainedRequests, tooMuchRetained),
    parsingSelectors: new TimeSliceScheduler(clock),
    retainedRequests,
    tooMuchRetained,
    maxStreamAgeMs: limits.maxStreamAgeMs,
    random,
  };
}
