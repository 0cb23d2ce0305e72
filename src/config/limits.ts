import { limitOptions } from "./limit-options.ts";
import type { OptionValues } from "./options.ts";

/** What clients may have, in all and for each identity: in milliseconds, bytes and counts; 0: no limit. */
export type LimitsConfig = ReturnType<typeof limitsOf>;

/** The limits, by the names that the server has for them. */
export function limitsOf(values: OptionValues) {
  return {
    maxStreams: values["max-streams"],
    maxStreamsPerIdentity: values["max-streams-per-identity"],
    maxSubscribeWatches: values["max-subscribe-watches"],
    maxConnections: values["max-connections"],
    maxConnectionsPerIdentity: values["max-connections-per-identity"],
    maxReadsInFlight: values["max-reads-in-flight"],
    maxWritesInFlight: values["max-writes-in-flight"],
    maxQueuedRequestsPerIdentity: values["max-queued-requests-per-identity"],
    maxQueueMs: values["max-queue-time"],
    maxRequestsPerIdentity: values["max-requests-per-identity"],
    maxWatchRate: values["max-watch-rate"],
    maxWatchRatePerIdentity: values["max-watch-rate-per-identity"],
    // Bytes per second.
    maxSendRate: values["max-send-rate"] ?? 0,
    maxSendRatePerIdentity: values["max-send-rate-per-identity"] ?? 0,
  };
}

/**
 * The limits that are divided between workers: each counts what it has itself. A time is the same for all, and a stream has
 * all of its watches at one.
 */
export const dividedLimitNames = (
  Object.keys(limitOptions) as (keyof typeof limitOptions)[]
).filter((name) => name !== "max-queue-time" && name !== "max-subscribe-watches");
