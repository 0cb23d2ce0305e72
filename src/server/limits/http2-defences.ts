import { constants, type ServerHttp2Session } from "node:http2";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { LineLimit } from "../../base/logger.ts";
import { isEnding } from "../http2/frames/framed-connection.ts";
import type { HandshakeFailures } from "./handshake-failures.ts";

/** What the log says of each kind, and at which level. */
const lines = {
  rapid_reset: ["warn", "a client exceeded a limit of HTTP/2"],
  ping_flood: ["warn", "a client exceeded a limit of HTTP/2"],
  settings_flood: ["warn", "a client exceeded a limit of HTTP/2"],
  header_flood: ["warn", "a client exceeded a limit of HTTP/2"],
  invalid_frames: ["warn", "a client sent frames that are invalid or have no use"],
  protocol_error: ["debug", "a client broke a rule of HTTP/2 and was closed"],
  too_many_connections: ["warn", "a connection was closed or refused at --max-connections"],
  slow_request: ["warn", "a client did not complete its request in time"],
  handshake_timeout: ["warn", "a client did not complete its handshake in time"],
  half_open: ["info", "a client did not acknowledge a keepalive ping in time and was closed"],
} as const;

/**
 * What clients do to a server with HTTP/2, on purpose or by mistake, and are stopped from:
 *
 * - `rapid_reset`: opens and resets streams far faster than it may; its connection is closed;
 * - `ping_flood`, `settings_flood`: sends more PING or SETTINGS frames than it may; its connection is closed;
 * - `header_flood`: sends headers above their bound, or in too many frames; its call is reset, or its connection closed;
 * - `invalid_frames`: sends frames that have no use, or what HTTP/2 does not allow in place of its first SETTINGS; its
 *   connection is closed;
 * - `protocol_error`: sends a frame that HTTP/2 does not allow, after its SETTINGS. grpc-go sends one whenever it closes a
 *   connection (its GOAWAY names a stream of its own, even if it never had one), so this kind is logged at level debug;
 * - `too_many_connections`: has the most connections at their maximum number, or opens one beyond that; one is closed;
 * - `slow_request`: does not complete a request in time; its call is refused;
 * - `handshake_timeout`: does not complete the TLS handshake in time; its connection is closed;
 * - `half_open`: does not acknowledge a keepalive ping in time; its connection is closed.
 *
 * Clients that accept their responses too slowly are not among them: see `SlowClients`. Nor are connections that do not
 * begin to speak HTTP/2: see `HandshakeFailures`.
 */
export type AttackKind = keyof typeof lines;

export const attackKinds = Object.keys(lines) as readonly AttackKind[];

/** The bounds of what a connection may send. */
export interface Http2DefenceBounds {
  /** Maximum number of PING frames per second. */
  readonly maxPingsPerSecond: number;
  /** Maximum number of SETTINGS frames per second. */
  readonly maxSettingsPerSecond: number;
  /** Burst of stream resets that Node.js allows. */
  readonly maxStreamsPerConnection: number;
}

/** The frames of one connection in the current period, and in the one before. */
interface Period {
  since: number;
  count: number;
  /** The count of the period before. */
  before: number;
}

/** Minimum time between two lines about the same kind, in milliseconds. */
const logIntervalMs = 10_000;

/** Streams that were opened within this time count as one burst, in milliseconds. */
const burstMs = 10_000;

/** What is known of a connection. */
class Peer {
  readonly address: string;
  readonly pings: Period = { since: 0, count: 0, before: 0 };
  readonly settings: Period = { since: 0, count: 0, before: 0 };
  readonly streams: Period = { since: 0, count: 0, before: 0 };
  /** Whether it has sent SETTINGS, as every client of HTTP/2 does first. */
  hasSettings = false;

  constructor(address: string) {
    this.address = address;
  }
}

/** What nghttp2 calls a connection that does not begin with the preface of HTTP/2. */
const badPreface = -903;

/**
 * Counts and logs what clients are stopped from, and closes connections that send too many PING or SETTINGS frames.
 * nghttp2 bounds those that come at once, resets of streams and CONTINUATION frames itself; the other bounds are in the
 * files that report here.
 */
export class Http2Defences {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #bounds: Http2DefenceBounds;
  readonly #counts = new Map<AttackKind, number>(attackKinds.map((kind) => [kind, 0]));
  readonly #handshakes: Pick<HandshakeFailures, "count">;
  readonly #lines: ReadonlyMap<AttackKind, LineLimit>;
  readonly #peers = new WeakMap<object, Peer>();

  /** `handshakes` counts connections that do not begin to speak HTTP/2. */
  constructor(
    clock: Clock,
    logger: Logger,
    bounds: Http2DefenceBounds,
    handshakes: Pick<HandshakeFailures, "count">,
  ) {
    this.#clock = clock;
    this.#logger = logger;
    this.#bounds = bounds;
    this.#handshakes = handshakes;
    this.#lines = new Map(attackKinds.map((kind) => [kind, new LineLimit(clock, logIntervalMs)]));
  }

  /** Number of times that clients were stopped, by kind. */
  get counts(): ReadonlyMap<AttackKind, number> {
    return this.#counts;
  }

  /** Observes a connection that begins to speak HTTP/2. `address` is that of its client in log lines. */
  watch(session: ServerHttp2Session, address: string): void {
    const peer = new Peer(address);
    this.#peers.set(session, peer);
    session.on("ping", () => {
      const { maxPingsPerSecond } = this.#bounds;
      if (this.#add(peer.pings, 1_000) > maxPingsPerSecond) this.close(session, "ping_flood");
    });
    session.on("remoteSettings", () => {
      peer.hasSettings = true;
      const { maxSettingsPerSecond } = this.#bounds;
      const count = this.#add(peer.settings, 1_000);
      if (count > maxSettingsPerSecond) this.close(session, "settings_flood");
    });
    session.on("stream", () => void this.#add(peer.streams, burstMs));
    session.on("error", (error) => {
      // An error of the socket: the client or the network has gone away.
      if ("syscall" in error) return;
      if ("errno" in error && error.errno === badPreface) {
        this.#handshakes.count("not_http2", address);
      } else {
        this.count(this.#kindOf(error, peer), session);
      }
    });
  }

  /**
   * Counts that a client was stopped, and logs it, one line for each kind in 10 s. `connection` is its HTTP/2 session, or
   * its address.
   */
  count(kind: AttackKind, connection: object | string): void {
    this.#counts.set(kind, (this.#counts.get(kind) ?? 0) + 1);
    const suppressed = this.#lines.get(kind)?.admit();
    if (suppressed === undefined) return;
    const peer = typeof connection === "string" ? connection : this.#peers.get(connection)?.address;
    const [level, text] = lines[kind];
    const counted = suppressed === 0 ? {} : { suppressedOfKind: suppressed };
    this.#logger[level]({ kind, peer, ...counted }, text);
  }

  /** Closes a connection, and counts why. Idempotent. */
  close(session: ServerHttp2Session, kind: AttackKind): void {
    if (isEnding(session)) return;
    this.count(kind, session);
    session.destroy(undefined, constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }

  /** Counts one more in the period, and returns the number in it. */
  #add(period: Period, lengthMs: number): number {
    const now = this.#clock.now();
    if (now - period.since >= lengthMs) {
      period.before = now - period.since < 2 * lengthMs ? period.count : 0;
      period.since = now;
      period.count = 0;
    }
    return ++period.count;
  }

  /** Why nghttp2 or Node.js has closed the connection. For resets they have no error of their own. */
  #kindOf(error: Error, { pings, settings, streams, hasSettings }: Peer): AttackKind {
    const { maxStreamsPerConnection } = this.#bounds;
    if (/CONTINUATION|header/i.test(error.message)) return "header_flood";
    if (/flood/i.test(error.message)) {
      const isSettings = error.message.includes("SETTINGS") || settings.count > pings.count;
      return isSettings ? "settings_flood" : "ping_flood";
    }
    // The streams of the read in which the connection is closed are not counted any more.
    const isBurst = Math.max(streams.count, streams.before) >= maxStreamsPerConnection / 2;
    if (isBurst) return "rapid_reset";
    const isViolation = error.message === "Protocol error";
    return isViolation && hasSettings ? "protocol_error" : "invalid_frames";
  }
}
