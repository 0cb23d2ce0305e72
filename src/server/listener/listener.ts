import {
  constants,
  type IncomingHttpHeaders,
  performServerHandshake,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Logger } from "pino";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { PeerFacts } from "../../identity/peer.ts";
import { type Connections, closeOnceAcknowledged } from "../http2/connections.ts";
import { FramedConnection, FramingContext } from "../http2/frames/framed-connection.ts";
import { lenientFields } from "../http2/http2-stream.ts";
import { peerFactsOf, peerNameOf, rawSocketOf } from "../http2/peer.ts";
import { maxHeaderBytes } from "../http2/request-headers.ts";
import type { HandshakeFailures } from "../limits/handshake-failures.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
import type { ServerLimits } from "../limits/server-limits.ts";
import { type Bound, bind, type HandedListen, type TcpListen, type UnixListen } from "./bind.ts";
import { type Http1Door, type Http1Pages, Http1Responder, onFirstBytes } from "./http1.ts";
import { TlsHandshakes, type TlsOptions } from "./tls-handshakes.ts";

/** Gets what a listener accepts. */
export interface AcceptedListener {
  /** A connection begins to speak HTTP/2, before anything is read from it. `acceptedAt` is in the clock's milliseconds. */
  begun(session: ServerHttp2Session, acceptedAt: number): void;
  /** A new stream of a connection. It may have been reset already. */
  opened(
    session: ServerHttp2Session,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
  ): void;
  /** Takes requests of HTTP/1. Undefined: only pages are served. */
  readonly http1: Http1Door | undefined;
}

export interface ListenerOptions {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Random numbers in [0, 1). */
  readonly random: () => number;
  readonly limits: ServerLimits;
  /** Undefined: plain text. */
  readonly tls: TlsOptions | undefined;
  /** Undefined: HTTP/1 is not served, unless the listener takes requests of it. */
  readonly pages: Http1Pages | undefined;
  readonly connections: Connections;
  readonly defences: Http2Defences;
  readonly handshakes: HandshakeFailures;
  /** Whether a client is a proxy that is trusted to forward the identities of others. */
  readonly isForwarder: (facts: PeerFacts) => boolean;
  readonly listener: AcceptedListener;
}

/** What fails also closes, and "close" has a listener. Without a listener an error would end the process. */
const ignore = (): void => {};

/** The most that Node.js takes. */
const unbounded = { streamResetBurst: 2 ** 31, streamResetRate: 2 ** 31 };

const notHttp2 =
  "HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain\r\n\r\n" +
  "This port serves gRPC, which needs HTTP/2: offer `h2` by ALPN.\n";

function nameOf(listen: TcpListen | UnixListen): string {
  if ("path" in listen) return `unix:${listen.path}`;
  const { host, port } = listen;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/**
 * The connections of a server: accepts them, or takes those that another process has accepted; does TLS; distinguishes
 * HTTP/1 from HTTP/2 by ALPN, without TLS by the first bytes; begins an HTTP/2 session on each, with its own bounds, pings
 * it, and ends it at its maximum age. It uses Node.js' public API alone.
 */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #tls: TlsHandshakes | undefined;
  readonly #http1: Http1Responder | undefined;
  readonly #framing: FramingContext;
  readonly #upkeep: UpkeepOptions;
  /** The HTTP/2 of connections of clients, and of those of trusted proxies. */
  readonly #http2: ServerOptions;
  readonly #http2OfForwarders: ServerOptions;
  #bound: Bound | undefined;
  #isHanded = false;
  #isClosed = false;

  /** Throws an Error with a sentence if a certificate or key is unusable. */
  constructor(options: ListenerOptions) {
    this.#options = options;
    const { clock, random, logger, limits, tls, pages, defences } = options;
    const { http1: door } = options.listener;
    const hasHttp1 = pages !== undefined || door !== undefined;
    const protocols = hasHttp1 ? ["h2", "http/1.1"] : ["h2"];
    this.#tls = tls && new TlsHandshakes(tls, protocols, this);
    this.#http1 = hasHttp1 ? new Http1Responder(pages ?? new Map(), logger, door) : undefined;
    this.#framing = new FramingContext(clock, limits.maxStreamsPerConnection);
    const onUnanswered = (session: ServerHttp2Session): void =>
      defences.count("half_open", session);
    this.#upkeep = { clock, random, limits, onUnanswered };
    const shared: ServerOptions = {
      ...lenientFields,
      // Node.js would refuse streams above it, and the calls of a connection are bounded elsewhere.
      maxSessionMemory: Number.MAX_SAFE_INTEGER,
      maxSendHeaderBlockLength: Number.MAX_SAFE_INTEGER,
      settings: {
        maxConcurrentStreams: limits.maxStreamsPerConnection,
        // A call with larger headers is reset with ENHANCE_YOUR_CALM. The default of 64 KiB is too large, since some
        // headers stay in memory for as long as the stream is open.
        maxHeaderListSize: maxHeaderBytes,
      },
    };
    // The default of 1,000 resets at once and 33 a second is below the number of calls that a client may have open: a
    // client that cancels its watches would lose its connection, with every other call on it.
    this.#http2 = {
      ...shared,
      streamResetBurst: limits.maxStreamsPerConnection,
      streamResetRate: limits.maxCancelsPerSecond,
    };
    // Clients share it, of which none may have it closed: `CallerLimits` bounds them one by one.
    this.#http2OfForwarders = { ...shared, ...unbounded, maxSessionRejectedStreams: 2 ** 32 - 1 };
  }

  /** The port that was bound. 0 before that, and for a Unix socket. */
  get port(): number {
    return this.#bound?.port ?? 0;
  }

  /**
   * Accepts connections from now on, or takes them from another process. Rejects with an Error with a sentence if the
   * address is in use or not one of this machine.
   */
  async listen(listen: TcpListen | UnixListen | HandedListen): Promise<void> {
    if ("acceptedAt" in listen) {
      const { acceptedAt } = listen;
      this.#isHanded = true;
      this.#bound = { port: "path" in acceptedAt ? 0 : acceptedAt.port, close: () => {} };
      return;
    }
    const { clock, logger } = this.#options;
    try {
      this.#bound = await bind(listen, {
        clock,
        onConnection: this.#take,
        onError: (error) =>
          logger.error({ err: error }, "the gRPC port failed to accept a connection"),
      });
    } catch (error) {
      throw new Error(`Can't listen on ${nameOf(listen)}: ${messageOf(error)}`, { cause: error });
    }
  }

  /** Takes a connection that another process has accepted. Only with `acceptedAt`. */
  accept(socket: Socket): void {
    if (this.#isClosed || !this.#isHanded) socket.destroy();
    else this.#take(socket);
  }

  /** The TLS. Throws an Error with a sentence without it. */
  get tls(): TlsHandshakes {
    if (this.#tls === undefined) throw new Error("The server has no TLS.");
    return this.#tls;
  }

  /** Accepts no more connections. Those that are open stay open. Idempotent. */
  close(): void {
    this.#isClosed = true;
    this.#bound?.close();
  }

  readonly #take = (socket: Socket): void => {
    this.#options.connections.add(socket);
    // It was above the maximum number.
    if (socket.destroyed) return;
    if (this.#tls !== undefined) this.#tls.take(socket);
    else if (this.#http1 !== undefined) onFirstBytes(socket, this.#begin, this.#http1.take);
    else this.#begin(socket);
  };

  /** For `TlsHandshakes`. */
  secured(socket: TLSSocket): void {
    if (socket.alpnProtocol === "h2") {
      this.#begin(socket);
    } else if (this.#http1 !== undefined) {
      this.#http1.take(socket);
    } else {
      this.#options.handshakes.count("protocol", peerNameOf(socket));
      // It is closed like one that does not finish its handshake, if its client does not close it.
      socket.on("error", ignore).end(notHttp2);
    }
  }

  /** For `TlsHandshakes`. */
  failed(error: Error, socket: TLSSocket): void {
    const name = peerNameOf(rawSocketOf(socket));
    this.#options.handshakes.failed(error, socket.authorizationError, name);
  }

  readonly #begin = (socket: Socket): void => {
    const { connections, listener, isForwarder } = this.#options;
    const facts = peerFactsOf(socket);
    const http2 = facts && isForwarder(facts) ? this.#http2OfForwarders : this.#http2;
    const framed = new FramedConnection(socket, this.#framing);
    const session = performServerHandshake(framed, http2);
    framed.begin(session);
    const acceptedAt = connections.begun(session, socket);
    if (acceptedAt !== undefined) listener.begun(session, acceptedAt);
    new SessionUpkeep(session, this.#upkeep);
    session.on("error", ignore);
    session.on("stream", (stream, headers) => {
      // At once: it may have been reset already.
      stream.on("error", ignore);
      listener.opened(session, stream, headers);
    });
    // It was accepted before, and is not among those that were ended then.
    if (this.#isClosed) closeOnceAcknowledged(session);
  };
}

export interface UpkeepOptions {
  readonly clock: Clock;
  /** Random numbers in [0, 1). */
  readonly random: () => number;
  readonly limits: {
    /** How long after the last answer a connection is pinged again, in milliseconds. */
    readonly keepaliveTimeMs: number;
    /** How long its client may take to answer, in milliseconds. */
    readonly keepaliveTimeoutMs: number;
    /** Age at which a connection gets a GOAWAY, in milliseconds, 10 % more or less; 0: never. */
    readonly maxStreamAgeMs: number;
  };
  /** Called when a client has not answered a ping in time, before its connection is closed. */
  readonly onUnanswered: (session: ServerHttp2Session) => void;
}

/** The part of the timeout of a ping that begins only once what has arrived by then has been read. */
const graceShare = 0.1;

const maxAge = Buffer.from("max_age");

/** Pings a connection until it is closed, and ends it at its maximum age: its calls finish, and no more are accepted. */
export class SessionUpkeep {
  readonly #session: ServerHttp2Session;
  readonly #options: UpkeepOptions;
  /** For the next ping, or for the answer to the last one. */
  #pingTimer: Timer | undefined;
  #ageTimer: Timer | undefined;

  constructor(session: ServerHttp2Session, options: UpkeepOptions) {
    this.#session = session;
    this.#options = options;
    const { clock, random, limits } = options;
    if (limits.maxStreamAgeMs > 0) {
      const ageMs = limits.maxStreamAgeMs * (0.9 + 0.2 * random());
      this.#ageTimer = clock.setTimeout(this.#end, Math.min(ageMs, maxTimerMs));
    }
    this.#pingLater();
    session.once("close", () => {
      this.#pingTimer?.cancel();
      this.#ageTimer?.cancel();
    });
  }

  readonly #end = (): void => {
    const session = this.#session;
    if (session.closed || session.destroyed) return;
    session.goaway(constants.NGHTTP2_NO_ERROR, 2 ** 31 - 1, maxAge);
    session.close();
  };

  #pingLater(): void {
    const { clock, limits } = this.#options;
    this.#pingTimer = clock.setTimeout(this.#ping, limits.keepaliveTimeMs);
  }

  readonly #ping = (): void => {
    const session = this.#session;
    // Node.js can't ping a session that ends gracefully. Streams of etcd's API and of health may last for longer: whether
    // their client is gone the operating system finds out (`bind`).
    if (session.closed || session.destroyed) return;
    const { clock, limits } = this.#options;
    const graceMs = limits.keepaliveTimeoutMs * graceShare;
    // A process that was stopped for longer than the timeout finds the timer and the answers at once. So the answers are
    // read first.
    const afterReads = (): void => {
      this.#pingTimer = clock.setTimeout(this.#unanswered, graceMs);
    };
    const onTimeout = (): void => {
      this.#pingTimer = clock.setImmediate(afterReads);
    };
    const isSent = session.ping((error) => {
      this.#pingTimer?.cancel();
      if (error === null) this.#pingLater();
    });
    if (isSent) this.#pingTimer = clock.setTimeout(onTimeout, limits.keepaliveTimeoutMs - graceMs);
    else session.destroy();
  };

  readonly #unanswered = (): void => {
    this.#options.onUnanswered(this.#session);
    this.#session.destroy();
  };
}
