/** The limits of a server, each with its default, in milliseconds, bytes and counts. */
export const defaultServerLimits = {
  /**
   * Maximum size of a request. Default 2 MiB: etcd's limit of 1.5 MiB for a request, and some room for what encloses it.
   * Equivalent to GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH.
   */
  maxRequestBytes: 2 * 1024 ** 2,
  /** Maximum number of open calls per connection. Default 10,000. */
  maxStreamsPerConnection: 10_000,
  /**
   * Maximum number of open streams (watches, health watches, reflection, calls of the etcd API) of all connections. A
   * further stream replaces one of the caller with the most streams, of its connection with the most, or is refused if
   * that is its own. Default 200,000.
   */
  maxStreams: 200_000,
  /** Maximum number of open streams of one caller. Default 0: no limit but `maxStreams`. */
  maxStreamsPerIdentity: 0,
  /** Maximum number of watches of one Subscribe stream, each of which also counts as a stream. Default 10,000. */
  maxSubscribeWatches: 10_000,
  /**
   * Maximum number of reads (Get, List) that are handled at once, of all callers; further ones wait. A caller may exceed it
   * with a few, so that others can't make it wait. Default 512.
   */
  maxReadsInFlight: 512,
  /** The same for writes (Put, Delete) that the store is processing. Default 256. */
  maxWritesInFlight: 256,
  /** Maximum number of requests of one caller that wait for that. Further ones are refused. Default 10,000. */
  maxQueuedRequestsPerIdentity: 10_000,
  /** How long a request may wait for that, in milliseconds. Default 5 s. */
  maxQueueMs: 5_000,
  /** Maximum number of requests of one caller in progress, waiting ones included. Default 0: no limit. */
  maxRequestsPerIdentity: 0,
  /** Maximum number of new watches per second, of all callers. Default 0: no limit. */
  maxWatchRate: 0,
  /** The same of one caller. Default 0: no limit. */
  maxWatchRatePerIdentity: 0,
  /** Maximum number of leases that a server has granted and that have not ended, of all callers. Default 100,000. */
  maxLeases: 100_000,
  /** The same of one caller. Default 10,000; 0: no limit but `maxLeases`. */
  maxLeasesPerIdentity: 10_000,
  /** Maximum number of leases that one caller is granted per second. Default 1,000; 0: no limit. */
  maxLeaseGrantRatePerIdentity: 1_000,
  /** Maximum number of leases that are renewed per second for one caller; further ones wait. Default 10,000; 0: no limit. */
  maxLeaseRenewalRatePerIdentity: 10_000,
  /** Maximum number of bytes of responses and events that are sent per second, to all callers. Default 0: no limit. */
  maxSendRate: 0,
  /** The same to one caller. Default 0: no limit. */
  maxSendRatePerIdentity: 0,
  /**
   * Maximum size of the request parts that a connection's streams and open reads retain: keys, prefixes and parsed
   * selectors, beyond a free allowance for each. Above it the one that retains most is ended. Default 32 MiB.
   */
  maxRetainedRequestBytesPerConnection: 32 * 1024 ** 2,
  /** The same for all connections; above it the connection that retains most loses streams. Default 256 MiB. */
  maxRetainedRequestBytes: 256 * 1024 ** 2,
  /**
   * Sustained rate of calls that a connection may cancel, per second, against floods of calls that are cancelled at once.
   * A burst of `maxStreamsPerConnection` is allowed in addition. Above that the connection is closed. On connections of
   * trusted proxies the same is the bound of each identity, whose calls are refused above it. Default 1,000.
   */
  maxCancelsPerSecond: 1_000,
  /**
   * Maximum number of PING frames of a connection per second; above that it is closed. Clients that measure bandwidth send
   * about one in each round trip. Default 10,000.
   */
  maxPingsPerSecond: 10_000,
  /** The same for SETTINGS frames. Default 1,000. */
  maxSettingsPerSecond: 1_000,
  /**
   * Maximum number of open connections. A further connection replaces one of the host that has most, and is refused if
   * that is its own host. Default 20,000.
   */
  maxConnections: 20_000,
  /** Maximum number of connections of one caller. Default 0: no limit but `maxConnections`. */
  maxConnectionsPerIdentity: 0,
  /** Time limit of a connection's TLS handshake. Default 10 s. */
  handshakeMs: 10_000,
  /** Interval of keepalive pings on a connection. Default 30 s. Equivalent to GRPC_ARG_KEEPALIVE_TIME_MS. */
  keepaliveTimeMs: 30_000,
  /**
   * Time limit of the response to a keepalive ping; then the connection's calls are ended. Default 20 s. Equivalent to
   * GRPC_ARG_KEEPALIVE_TIMEOUT_MS.
   */
  keepaliveTimeoutMs: 20_000,
  /** How long a client may take to accept one response before its call is ended. Default 60 s. */
  responseFlushMs: 60_000,
  /** How long a client may take to send its request. Default 60 s. */
  requestMs: 60_000,
  /**
   * Maximum size of requests that are incomplete, not inflated or not handled yet, of all connections. Above it the
   * connection that holds most loses its largest request. Default 64 MiB.
   */
  maxUnreadBytes: 64 * 1024 ** 2,
  /** The same per connection; above it the connection loses its largest request. Default 16 MiB. */
  maxUnreadBytesPerConnection: 16 * 1024 ** 2,
  /**
   * Maximum number of calls whose request has not arrived completely, of all connections. Above it the caller with the
   * most loses its oldest. Default 30,000.
   */
  maxIncompleteCalls: 30_000,
  /** The same of one caller, on all of its connections. Default 10,000: all calls of one connection. */
  maxIncompleteCallsPerCaller: 10_000,
  /**
   * Maximum size of responses and watch frames that clients have not accepted, of all connections, with shared memory
   * counted once. Above half of it new ones wait for room, and those that were not accepted for 10 s are evicted. Above it
   * the connection that holds most loses its largest. Default 256 MiB.
   */
  maxUnsentBytes: 256 * 1024 ** 2,
  /** The same per connection; above it the connection's next responses and frames wait. Default 16 MiB. */
  maxUnsentBytesPerConnection: 16 * 1024 ** 2,
  /**
   * How long a client may take to accept the end of a stream before it is reset, and to close a connection without calls
   * when the server shuts down. Default 1 s.
   */
  endFlushMs: 1_000,
  /**
   * Approximate maximum age of connections and watches. They end gracefully then (GOAWAY, DRAINING), so that load
   * spreads over replicas. Default 1 hour; 0: unlimited. Equivalent to GRPC_ARG_MAX_CONNECTION_AGE_MS.
   */
  maxStreamAgeMs: 60 * 60_000,
} satisfies Record<string, number>;

/** Limits of a server, in milliseconds, bytes and counts. */
export type ServerLimits = { readonly [Name in keyof typeof defaultServerLimits]: number };
