/** What a server allows, in milliseconds, bytes and counts. */
export interface ServerLimits {
  /**
   * The largest request. Default 2 MiB: etcd's own limit of 1.5 MiB for what it is sent, and some for
   * what is around it. Equivalent to GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH.
   */
  readonly maxRequestBytes: number;
  /** How many calls one connection may have open. Default 10,000. */
  readonly maxStreamsPerConnection: number;
  /**
   * How many streams of any kind (watches, health watches, reflection) may be open on all connections together.
   * One more takes the place of one of the connection that has most, or is refused if that is its own. Default
   * 200,000.
   */
  readonly maxStreams: number;
  /**
   * How many bytes may be kept of what the streams of one connection have asked for, and its reads that are not
   * answered yet: keys, prefixes and parsed selectors, as far as they go beyond what every one may have. Above that the
   * one that takes most is ended.
   * Default 32 MiB.
   */
  readonly maxRetainedRequestBytesPerConnection: number;
  /** The same for all connections together, of which then the one that has most loses streams. Default 256 MiB. */
  readonly maxRetainedRequestBytes: number;
  /**
   * How many calls a second one connection may cancel in the long run, against floods of calls that are
   * cancelled at once; above that it is closed. Beside that it may cancel all that it may have open.
   * Default 1,000.
   */
  readonly maxCancelsPerSecond: number;
  /**
   * How many connections may be open. Beyond that a new one takes the place of the one that has been without a call
   * for longest, and is refused while all have calls. Default 20,000.
   */
  readonly maxConnections: number;
  /** How long a connection may take to finish its TLS handshake. Default 10 s. */
  readonly handshakeMs: number;
  /**
   * After how long a connection is asked whether it still lives. Default 30 s. Equivalent to
   * GRPC_ARG_KEEPALIVE_TIME_MS.
   */
  readonly keepaliveTimeMs: number;
  /**
   * How long it may take to answer that; then its calls are ended. Default 20 s. Equivalent to
   * GRPC_ARG_KEEPALIVE_TIMEOUT_MS.
   */
  readonly keepaliveTimeoutMs: number;
  /** How long a client may take to accept one response before its call is ended. Default 60 s. */
  readonly responseFlushMs: number;
  /** How long a client may take to send its request. Default 60 s. */
  readonly requestMs: number;
  /**
   * How many bytes of requests may be held that are not whole, not inflated or not served yet, of all
   * connections together. Above that the connection that holds most loses its largest. Default 64 MiB.
   */
  readonly maxUnreadBytes: number;
  /** The same of one connection, which above that loses its largest. Default 16 MiB. */
  readonly maxUnreadBytesPerConnection: number;
  /**
   * How many bytes of answers and watch frames may be held that clients have not accepted, for all connections together;
   * memory that several share counts once. Above half of it new ones wait for room, and above it, or if they have waited
   * for those that accept nothing, the connection that holds most loses its largest. Default 256 MiB.
   */
  readonly maxUnsentBytes: number;
  /**
   * How many bytes may be on their way to one connection; its next answers and frames wait until it has accepted
   * some. Default 16 MiB.
   */
  readonly maxUnsentBytesPerConnection: number;
  /**
   * How long a client may take to accept the end of a stream before it is reset, and to close a
   * connection without calls when the server shuts down. Default 1 s.
   */
  readonly endFlushMs: number;
  /**
   * How old connections and watches become, about: then they are ended in order (GOAWAY, DRAINING), so
   * that load spreads over replicas. Default 1 hour; 0: never. Equivalent to
   * GRPC_ARG_MAX_CONNECTION_AGE_MS.
   */
  readonly maxStreamAgeMs: number;
}

export const defaultServerLimits: ServerLimits = {
  maxRequestBytes: 2 * 1024 ** 2,
  maxStreamsPerConnection: 10_000,
  maxStreams: 200_000,
  maxRetainedRequestBytesPerConnection: 32 * 1024 ** 2,
  maxRetainedRequestBytes: 256 * 1024 ** 2,
  maxCancelsPerSecond: 1_000,
  maxConnections: 20_000,
  handshakeMs: 10_000,
  keepaliveTimeMs: 30_000,
  keepaliveTimeoutMs: 20_000,
  responseFlushMs: 60_000,
  requestMs: 60_000,
  maxUnreadBytes: 64 * 1024 ** 2,
  maxUnreadBytesPerConnection: 16 * 1024 ** 2,
  maxUnsentBytes: 256 * 1024 ** 2,
  maxUnsentBytesPerConnection: 16 * 1024 ** 2,
  maxStreamAgeMs: 60 * 60_000,
  endFlushMs: 1_000,
};
