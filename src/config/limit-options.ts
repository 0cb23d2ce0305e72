import {
  countOption,
  durationOption,
  type OptionDefinition,
  sizeOption,
  type ValuesOf,
} from "./option-definition.ts";

/** The options that limit what clients may have, in all and for each identity. */
export const limitOptions = {
  "max-streams": {
    ...countOption(1),
    help: "Maximum number of open streams: watches, health watches, reflection, calls of the etcd API.",
    default: "200000",
  },
  "max-streams-per-identity": {
    ...countOption(0),
    help: "The same of one identity, or host of anonymous callers. 0: no limit.",
    default: "0",
  },
  "max-subscribe-watches": {
    ...countOption(1),
    help: "Maximum number of watches on one Subscribe stream. Each also counts as a stream.",
    default: "10000",
  },
  "max-connections": {
    ...countOption(1),
    help: "Maximum number of open connections. Fewer are accepted if the hard limit of open files is less than 640 above it.",
    default: "20000",
  },
  "max-connections-per-identity": {
    ...countOption(0),
    help: "The same of one identity, that of a connection's first call. 0: no limit.",
    default: "0",
  },
  "max-reads-in-flight": {
    ...countOption(1),
    help: "Maximum number of reads (Get, List) that are handled at once. Further ones wait, except those of identities with fewer than 16.",
    default: "512",
  },
  "max-writes-in-flight": {
    ...countOption(1),
    help: "The same for writes (Put, Delete) that the store is processing.",
    default: "256",
  },
  "max-queued-requests-per-identity": {
    ...countOption(1),
    help: "Maximum number of requests of one identity that wait.",
    default: "10000",
  },
  "max-queue-time": {
    ...durationOption("10ms"),
    help: "How long a request may wait.",
    default: "5s",
  },
  "max-requests-per-identity": {
    ...countOption(0),
    help: "Maximum number of requests of one identity, waiting ones included. 0: no limit.",
    default: "0",
  },
  "max-watch-rate": {
    ...countOption(0),
    help: "Maximum number of new watches per second, on average. 0: no limit.",
    default: "0",
  },
  "max-watch-rate-per-identity": {
    ...countOption(0),
    help: "The same of one identity. 0: no limit.",
    default: "0",
  },
  "max-leases": {
    ...countOption(1),
    help: "Maximum number of leases that this service has granted and that have not ended.",
    default: "100000",
  },
  "max-leases-per-identity": {
    ...countOption(0),
    help: "The same of one identity. A relay is one: it may need more. 0: no limit.",
    default: "10000",
  },
  "max-lease-grant-rate-per-identity": {
    ...countOption(0),
    help: "Maximum number of leases that one identity is granted per second, on average. 0: no limit.",
    default: "1000",
  },
  "max-lease-renewal-rate-per-identity": {
    ...countOption(0),
    help: "Maximum number of leases that are renewed per second for one identity, on average; further ones wait. 0: no limit.",
    default: "10000",
  },
  "max-send-rate": {
    ...sizeOption,
    help: "Maximum size of what is sent per second, on average.",
    defaultHelp: "no limit",
  },
  "max-send-rate-per-identity": {
    ...sizeOption,
    help: "The same to one identity.",
    defaultHelp: "no limit",
  },
} as const satisfies Readonly<Record<string, OptionDefinition>>;

/** What clients may have, in all and for each identity: in milliseconds, bytes and counts; 0: no limit. */
export type LimitsConfig = ReturnType<typeof limitsOf>;

/** The limits, by the names that the server has for them. */
export function limitsOf(values: ValuesOf<typeof limitOptions>) {
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
    maxLeases: values["max-leases"],
    maxLeasesPerIdentity: values["max-leases-per-identity"],
    maxLeaseGrantRatePerIdentity: values["max-lease-grant-rate-per-identity"],
    maxLeaseRenewalRatePerIdentity: values["max-lease-renewal-rate-per-identity"],
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
