import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  connect,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import { type Bearer, identified } from "./call-headers.ts";
import type { Keepalive } from "./member.ts";

/**
 * Maximum number of calls on one connection to etcd. etcd allows almost any number by default
 * (--max-concurrent-streams), but one connection is one TCP stream, and its member serves it with one goroutine.
 */
const maxCalls = 1_000;

/** How long a connection may take until etcd's first SETTINGS frame, in milliseconds. */
const connectMs = 3_000;

/** HTTP/2 flow control window of one call's response: what etcd may send that the client has not accepted, in bytes. */
const responseWindowBytes = 128 * 1024;

/** The window of a connection, in bytes. Node.js extends it when data arrives, so it delays no call for another. */
const connectionWindowBytes = 8 * 1024 ** 2;

/** In MB. The pending data of calls has bounds of its own, and a session that exceeds this refuses calls. */
const maxSessionMemory = 1_024;

/**
 * Number of calls after which a connection gets no further ones: HTTP/2 has 2^30 ids for the streams of a client, and never
 * uses one again.
 */
const defaultMaxCallsEver = 2 ** 29;

/**
 * After how long without anything from its member since a call was made others are preferred, and until when, in milliseconds.
 * Then it is tried again: the call may have been one that waits, and was cancelled.
 */
const silence = { fromMs: 1_000, untilMs: 10_000 };

const ignore = (): void => {};

/** Where to connect to, as Node.js takes it. */
export type EndpointAddress =
  | { readonly host: string; readonly port: number }
  | { readonly path: string };

/** A Unix socket. With TLS its path is absolute, as a host may have the name unix. */
const socketPattern = /^(?:unix:|https:\/\/unix:(?=\/))(.+)$/;

/** The address of an endpoint, such as "https://[::1]:443", "unix:main.sock" or, with TLS, "https://unix:/run/main.sock". */
export function addressOf(endpoint: string): EndpointAddress {
  const path = socketPattern.exec(endpoint)?.[1];
  if (path !== undefined) return { path };
  const host = new URL(endpoint).hostname.replace(/^\[(.*)\]$/, "$1");
  // URL leaves out the default port of the scheme, which is not etcd's.
  const [, port = "2379"] = /:(\d+)$/.exec(endpoint) ?? [];
  return { host, port: Number(port) };
}

/** The URL of an endpoint, as HTTP names it: a socket has no host. */
export function urlOf(endpoint: string): string {
  if (!socketPattern.test(endpoint)) return endpoint;
  return endpoint.startsWith("https:") ? "https://localhost" : "http://localhost";
}

/** The member of a connection, as far as that needs it. */
export interface ConnectedMember {
  readonly endpoint: string;
  readonly keepalive: Keepalive;
  readonly bearer?: Bearer | undefined;
  /** Whether calls that need one member go to this one now. */
  readonly isInUse: boolean;
  /** Whether it can't be reached or has refused a call lately, so that others are preferred. */
  readonly isLeftOut: boolean;
  /** It has refused a call: others are preferred for a while. */
  refused(why: string): void;
  /** Starts the TCP or TLS connection. */
  open(): Socket;
  /** The last call of the connection has ended. */
  idle(connection: UpstreamConnection): void;
  /** Called once, when no further call can be made. */
  lost(connection: UpstreamConnection): void;
}

/** The endpoint of the embedded store, in this process. Nothing else can connect to it. */
export const embeddedEndpoint = "embedded:store";

/** A call to a member, as its caller has it: what of Node.js' HTTP/2 stream is used. */
export interface UpstreamStream
  extends Pick<ClientHttp2Stream, "readableLength" | "writableNeedDrain" | "closed" | "rstCode"> {
  on(event: "data", listener: (chunk: Buffer) => void): unknown;
  on(event: "trailers", listener: (trailers: IncomingHttpHeaders) => void): unknown;
  /** `flags` has `NGHTTP2_FLAG_END_STREAM` if these headers are trailers as well. */
  on(event: "response", listener: (headers: IncomingHttpHeaders, flags: number) => void): unknown;
  on(event: "readable" | "end" | "close" | "drain", listener: () => void): unknown;
  read(): Buffer | null;
  pause(): unknown;
  resume(): unknown;
  write(bytes: Buffer, onSent?: () => void): boolean;
  end(): unknown;
  /** Resets it. */
  close(rstCode: number): void;
}

/** What calls to a member are made on. */
export type UpstreamConnection = Omit<Http2Connection, "request"> & {
  request(headers: OutgoingHttpHeaders): UpstreamStream;
};

/** One HTTP/2 connection to a member of etcd. */
export class Http2Connection {
  readonly member: ConnectedMember;
  readonly #clock: Clock;
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  #calls = 0;
  /** Number of calls that it may still get. */
  #callsLeft: number;
  #isOpen = true;
  #isUnresponsive = false;
  #failure: Error | undefined;
  #timer: Timer | undefined;
  #bytesRead = 0;
  /** What had been read when the first call was made that is not answered, and when that was. */
  readonly #unanswered = { bytesRead: -1, since: 0 };

  /** `session` has received etcd's settings. */
  private constructor(
    clock: Clock,
    session: ClientHttp2Session,
    socket: Socket,
    member: ConnectedMember,
    callsLeft: number,
  ) {
    this.#callsLeft = callsLeft;
    this.#clock = clock;
    this.#session = session;
    this.#socket = socket;
    this.member = member;
    session.on("error", (error) => {
      this.#failure = error;
    });
    session.on("goaway", () => this.#lose());
    session.on("close", () => this.#lose());
    if (this.#isChecked) this.#watch();
  }

  /**
   * Connects. Rejects with an Error if there is no HTTP/2 connection within `connectMs`. `maxCallsEver`: number of calls after
   * which it gets no further ones.
   */
  static connect(
    clock: Clock,
    member: ConnectedMember,
    maxCallsEver: number = defaultMaxCallsEver,
  ): Promise<Http2Connection> {
    return new Promise((resolve, reject) => {
      let socket: Socket | undefined;
      let failure: Error | undefined;
      const session = connect(urlOf(member.endpoint), {
        createConnection: () => {
          socket = member.open();
          return socket;
        },
        settings: { enablePush: false, initialWindowSize: responseWindowBytes },
        maxSessionMemory,
        // As to all other implementations of HTTP/2, a value with white space around it is one without.
        strictFieldWhitespaceValidation: false,
      });
      const timer = clock.setTimeout(() => {
        failure = new Error(`no HTTP/2 connection within ${connectMs / 1_000} s`);
        session.destroy();
      }, connectMs);
      const onError = (error: Error): void => {
        failure = error;
      };
      const onClose = (): void => {
        timer.cancel();
        reject(failure ?? new Error("the connection was closed"));
      };
      session.on("error", onError).on("close", onClose);
      session.once("connect", () => {
        if (!session.destroyed) session.setLocalWindowSize(connectionWindowBytes);
      });
      session.once("remoteSettings", () => {
        timer.cancel();
        session.off("close", onClose);
        resolve(new Http2Connection(clock, session, socket as Socket, member, maxCallsEver));
      });
    });
  }

  /** Whether another call can be made on it. */
  get hasRoom(): boolean {
    const { closed, destroyed, remoteSettings } = this.#session;
    // Its end is announced in a later turn, and until then a request would throw.
    if (!this.#isOpen || closed || destroyed) return false;
    return this.#calls < Math.min(remoteSettings?.maxConcurrentStreams ?? maxCalls, maxCalls);
  }

  /** Whether calls that need one member go to this one now. Those that it has may continue when they no longer do. */
  get isInUse(): boolean {
    return this.member.isInUse;
  }

  /**
   * Whether nothing has arrived for a while since a call was made, so that others are preferred: a member that hangs closes
   * nothing, and pings show it only later.
   */
  get isSilent(): boolean {
    const { bytesRead, since } = this.#unanswered;
    const forMs = this.#clock.now() - since;
    if (forMs < silence.fromMs || forMs >= silence.untilMs) return false;
    return this.#socket.bytesRead === bytesRead;
  }

  /** Whether it was closed without having answered keepalive pings. */
  get isUnresponsive(): boolean {
    return this.#isUnresponsive;
  }

  /** Why it is gone, in a few words; undefined while it is there. A call that ends then has no outcome. */
  get lost(): string | undefined {
    if (!this.#session.destroyed && !this.#socket.destroyed) return undefined;
    return this.#failure?.message ?? "closed by etcd";
  }

  /** Starts a call, if `hasRoom`. Throws an Error if Node.js does not send these headers. */
  request(headers: OutgoingHttpHeaders): ClientHttp2Stream {
    const { bearer } = this.member;
    const sent = bearer === undefined ? headers : identified(headers, bearer);
    const stream = this.#session.request(sent, { endStream: false });
    this.#sent();
    this.#calls++;
    this.#callsLeft--;
    // It is closed behind its last call: at once, Node.js would refuse calls that it has not sent yet.
    if (this.#callsLeft === 0) this.#lose();
    if (this.#calls === 1) this.#watch();
    // A call that fails also closes.
    stream.on("error", ignore);
    stream.on("close", () => {
      this.#calls--;
      if (this.#calls > 0) return;
      if (!this.#isChecked) this.#endTimer();
      if (this.#isOpen) this.member.idle(this);
      else this.#session.close();
    });
    return stream;
  }

  /** Closes it once it has no calls. */
  close(): void {
    this.#lose();
    this.#session.close();
  }

  /** Closes it now, with all calls. */
  destroy(): void {
    this.#lose();
    this.#session.destroy(undefined, constants.NGHTTP2_CANCEL);
  }

  /** Whether keepalive pings are sent. */
  get #isChecked(): boolean {
    return this.#calls > 0 || (this.#isOpen && this.member.keepalive.withoutCalls);
  }

  #lose(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    if (!this.#isChecked) this.#endTimer();
    this.member.lost(this);
  }

  /** A call is made. */
  #sent(): void {
    const { bytesRead } = this.#socket;
    const last = this.#unanswered;
    const now = this.#clock.now();
    if (bytesRead === last.bytesRead && now - last.since < silence.untilMs) return;
    last.bytesRead = bytesRead;
    last.since = now;
  }

  /** Closes the connection if its member does not respond: a machine that is gone closes nothing. */
  #watch(): void {
    if (this.#timer !== undefined || this.#session.destroyed) return;
    this.#bytesRead = this.#socket.bytesRead;
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = undefined;
      if (!this.#isChecked || this.#session.destroyed) return;
      if (this.#socket.bytesRead === this.#bytesRead) this.#ping();
      else this.#watch();
    }, this.member.keepalive.timeMs);
  }

  #ping(): void {
    this.#timer = this.#clock.setTimeout(() => {
      this.#isUnresponsive = true;
      this.#failure = new Error("etcd did not respond to a keepalive ping");
      this.destroy();
      // Node.js does not close it before its last write is done, which a member that reads nothing never lets happen.
      this.#socket.destroy();
    }, this.member.keepalive.timeoutMs);
    const timer = this.#timer;
    this.#session.ping(() => {
      timer.cancel();
      if (this.#timer !== timer) return;
      this.#timer = undefined;
      if (this.#isChecked) this.#watch();
    });
  }

  #endTimer(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
