import {
  constants,
  type Http2SecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Socket } from "node:net";
import type { SecureContextOptions, TLSSocket } from "node:tls";
import type { Metadata, Server } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { framedConnectionOf } from "./frames/framed-connections.ts";
import { statusOfReset } from "./reset-codes.ts";

/*
 * The only file that uses private fields of grpc-js and Node.js, to get at the HTTP/2 server and streams below grpc-js'
 * public API. Each function says why it needs to. They expect the fields of grpc-js 1.14, and do nothing if a field is
 * not there.
 */

/** A stream that fails also closes, and "close" has a listener. Without a listener an error would end the process. */
const ignore = (): void => {};

export interface Http2Listeners {
  /** Gets every stream and its session, which a stream that is closed by then has forgotten. grpc-js gets none. */
  readonly stream: (
    session: ServerHttp2Session,
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
  ) => void;
  /** Called before the TLS handshake, if there is one. */
  readonly connection: (socket: Socket) => void;
  /** Called when a TLS handshake fails, also because the client's certificate is refused (its `authorizationError`). */
  readonly tlsFailure: (error: Error, socket: TLSSocket) => void;
  /** Called behind the TLS handshake, if there is one, before anything is read. */
  readonly secured: (socket: TLSSocket) => void;
  /** Called when a connection begins to speak HTTP/2. */
  readonly session: (session: ServerHttp2Session) => void;
  /** grpc-js listens to errors only while it binds. A later one would end the process. */
  readonly error: (error: Error) => void;
}

/** The stream resets that a connection may send. */
export interface ResetBounds {
  readonly burst: number;
  /** Sustained rate. */
  readonly perSecond: number;
}

/**
 * Lets headers through whose value begins or ends with white space. By default nghttp2 drops such a header without a word,
 * so a caller with a wrong credential would be anonymous. Node.js has the option in 22.17 and later releases of 22, and since
 * 24.2. Others ignore it.
 */
export const lenientFields = { strictFieldWhitespaceValidation: false };

/** The most that Node.js takes. */
export const unboundedResets: ResetBounds = { burst: 2 ** 31, perSecond: 2 ** 31 };

/** The HTTP/2 bounds of a connection. */
export interface Http2Bounds {
  /** The stream resets that are allowed before Node.js closes the connection. */
  readonly resets: ResetBounds;
  /**
   * Maximum size of a call's headers, in bytes, with 32 added for each header. A call with larger headers is reset with
   * ENHANCE_YOUR_CALM.
   */
  readonly headerBytes: number;
}

/** Lets the HTTP/2 servers that are bound later negotiate HTTP/1 as well, with TLS. grpc-js has no option for it. */
export function negotiateHttp1(server: Server): void {
  const http2Options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof http2Options === "object" && http2Options !== null) {
    Object.assign(http2Options, { allowHTTP1: true });
  }
}

/**
 * Sets the bounds of the HTTP/2 servers that are bound later. grpc-js has no options for them. Node.js' default of 1,000
 * resets at once and 33 a second is below the number of calls that a client may have open: a client that cancels its
 * watches would lose its connection, with every other call on it. Node.js' default of 64 KiB of headers is too large,
 * since some headers stay in memory for as long as the stream is open.
 */
export function boundHttp2(server: Server, bounds: Http2Bounds): void {
  const http2Options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof http2Options !== "object" || http2Options === null) return;
  const settings: unknown = Reflect.get(http2Options, "settings");
  Object.assign(http2Options, {
    ...lenientFields,
    streamResetBurst: bounds.resets.burst,
    streamResetRate: bounds.resets.perSecond,
    settings: { ...(settings as object | undefined), maxHeaderListSize: bounds.headerBytes },
  });
}

/**
 * Applies `bounds`, such as versions of TLS, to a server with TLS, for its present certificates and for later ones. grpc-js
 * has no option for them, and replaces all options of TLS together with a certificate.
 */
export function boundTls(
  http2Server: Http2Server,
  present: SecureContextOptions,
  bounds: SecureContextOptions,
): void {
  if (!("setSecureContext" in http2Server)) return;
  const secure = http2Server as Http2Server & Pick<Http2SecureServer, "setSecureContext">;
  const replace = secure.setSecureContext.bind(secure);
  secure.setSecureContext = (options) => replace({ ...options, ...bounds });
  secure.setSecureContext(present);
}

/** Where Node.js has the number of streams above the limit that it refuses in a row, in the native fields of a session. */
const refusedStreamsAt = 8;

/** Its default. */
const defaultRefusedStreams = 100;

/**
 * Lets Node.js refuse any number of streams of this connection: it is shared by clients of which none may have it closed.
 * Node.js has an option only for all connections of a server.
 */
export function refuseStreamsWithoutBound(session: ServerHttp2Session): void {
  const isFields = ({ description }: symbol): boolean => description === "kNativeFields";
  const symbol = Object.getOwnPropertySymbols(session).find(isFields);
  const fields: unknown = symbol && Reflect.get(session, symbol);
  if (!(fields instanceof Uint8Array) || fields.buffer.byteLength < refusedStreamsAt + 4) return;
  const bound = new Uint32Array(fields.buffer, refusedStreamsAt, 1);
  if (bound[0] === defaultRefusedStreams) bound[0] = 2 ** 32 - 1;
}

/**
 * Takes over the HTTP/2 servers of a bound grpc-js server, and returns how many there are. `prepare` is called with each
 * before the listeners are added.
 */
export function listenToHttp2(
  server: Server,
  listeners: Http2Listeners,
  prepare?: (http2Server: Http2Server) => void,
): number {
  const http2Servers: unknown = Reflect.get(server, "http2Servers");
  if (!(http2Servers instanceof Map)) return 0;
  for (const http2Server of http2Servers.keys() as Iterable<Http2Server>) {
    prepare?.(http2Server);
    http2Server.removeAllListeners("stream");
    http2Server.prependListener("connection", listeners.connection);
    http2Server.prependListener("secureConnection", listeners.secured);
    http2Server.on("tlsClientError", listeners.tlsFailure);
    http2Server.on("session", (session) => {
      listeners.session(session);
      session.on("stream", (stream, headers) => {
        // At once: it may have been reset already.
        stream.on("error", ignore);
        listeners.stream(session, stream, headers);
      });
    });
    http2Server.on("error", listeners.error);
  }
  return http2Servers.size;
}

/**
 * The HTTP/2 stream of a grpc-js call; undefined if it is not found. It is needed to end a call whose client has closed
 * its flow control window, where the status would wait behind the data indefinitely, and to detect that a call was
 * cancelled just before its handler runs, which grpc-js does not report to the handler.
 */
export function http2StreamOf(call: object): ServerHttp2Stream | undefined {
  let layer: unknown = Reflect.get(call, "call");
  // Interceptors, if there are any, each wrap the next.
  while (typeof layer === "object" && layer !== null) {
    const stream: unknown = Reflect.get(layer, "stream");
    if (isHttp2Stream(stream)) return stream;
    layer = Reflect.get(layer, "nextCall");
  }
  return undefined;
}

/**
 * Releases what grpc-js retains of a call's request until the call ends: the client's metadata, the decoded message and
 * its bytes. grpc-js has its own references to the first two, so they are emptied in place.
 */
export function forgetRequest(call: {
  readonly request: object;
  readonly metadata: Metadata;
}): void {
  forgetMetadata(call.metadata);
  for (const field of Object.keys(call.request)) Reflect.set(call.request, field, undefined);
  let layer: unknown = Reflect.get(call, "call");
  while (typeof layer === "object" && layer !== null) {
    const decoder: unknown = Reflect.get(layer, "decoder");
    if (typeof decoder === "object" && decoder !== null) {
      Reflect.set(decoder, "readPartialMessage", []);
    }
    layer = Reflect.get(layer, "nextCall");
  }
}

/** Releases the metadata alone, for calls that have more than one request. */
export function forgetMetadata(metadata: Metadata): void {
  for (const name of Object.keys(metadata.getMap())) metadata.remove(name);
}

function isHttp2Stream(value: unknown): value is ServerHttp2Stream {
  return (
    typeof value === "object" &&
    value !== null &&
    "rstCode" in value &&
    typeof Reflect.get(value, "close") === "function"
  );
}

/**
 * Closes a stream whose response has ended, and discards what the client still sends (RFC 9113, 8.1). In the next turn of
 * the event loop: in the same turn, Node.js 22 sends RST_STREAM ahead of the response, which the client then never gets.
 */
export function closeAfterResponse(stream: ServerHttp2Stream, clock: Clock): void {
  clock.setImmediate(() => {
    if (!stream.destroyed) stream.close(constants.NGHTTP2_NO_ERROR);
  });
}

/** Refuses a request that is not gRPC, as HTTP does it: with 415. Nothing of it is kept. */
export function refuseAsHttp(stream: ServerHttp2Stream, clock: Clock): void {
  if (stream.destroyed || stream.closed) return;
  stream.respond({ ":status": 415 }, { endStream: true });
  closeAfterResponse(stream, clock);
}

/** The gRPC status codes of streams that the server has ended without sending one. */
const unsentStatuses = new WeakMap<ServerHttp2Stream, number>();

/** The server has ended a stream with this gRPC status code, and can't send it. A later one has no effect. */
export function endedUnsent(stream: ServerHttp2Stream, code: number): void {
  if (!unsentStatuses.has(stream)) unsentStatuses.set(stream, code);
}

/** Ends a stream at once and drops unsent data. gRPC clients see ENHANCE_YOUR_CALM as RESOURCE_EXHAUSTED. */
export function resetStream(
  stream: ServerHttp2Stream,
  code: number = constants.NGHTTP2_ENHANCE_YOUR_CALM,
): void {
  if (stream.destroyed || stream.closed) return;
  const seen = statusOfReset(code);
  if (seen !== undefined) endedUnsent(stream, seen);
  stream.close(code);
}

/**
 * The gRPC status code that the server ended the stream with; undefined if the client or the connection ended it. The
 * stream's own `rstCode` may be that of the client, which may be any.
 */
export function statusCodeOf(stream: ServerHttp2Stream): number | undefined {
  // Without any message the status is in the headers.
  const sent = stream.sentTrailers?.["grpc-status"] ?? stream.sentHeaders?.["grpc-status"];
  return sent === undefined ? unsentStatuses.get(stream) : Number(sent);
}

/**
 * Stops reading from the session's socket until `resumeReading`. Node.js has no API for that: a session takes over its
 * socket's handle, and the public `pause` of the socket throws from then on. Called within an event of the session it
 * takes effect at once: the chunk that libuv has read, up to 64 KiB, is still processed, and no more is read.
 */
export function pauseReading(session: ServerHttp2Session): void {
  const framed = framedConnectionOf(session);
  if (framed !== undefined) {
    framed.hold();
    return;
  }
  const handle = handleOf(session);
  if (handle !== undefined) callMethod(handle, "readStop");
}

/**
 * Undoes `pauseReading`. No effect if the session is closed.
 *
 * While Node.js has data that the socket does not accept, it does not read either, and resumes by itself once the data is
 * written. It must not be resumed earlier: it would collect what it reads without a bound, and copy all of it with each
 * further read.
 */
export function resumeReading(session: ServerHttp2Session): void {
  const framed = framedConnectionOf(session);
  if (framed !== undefined) {
    framed.release();
    return;
  }
  const handle = handleOf(session);
  if (handle === undefined || hasUnwritten(handle)) return;
  callMethod(handle, "readStart");
}

function hasUnwritten(handle: object): boolean {
  return Number(Reflect.get(handle, "writeQueueSize")) > 0;
}

/** The accepted socket below a socket of TLS, for which Node.js has no API; otherwise the socket itself. */
export function rawSocketOf(socket: Socket): Socket {
  const parent: unknown = Reflect.get(socket, "_parent");
  return typeof parent === "object" && parent !== null ? (parent as Socket) : socket;
}

function handleOf(session: ServerHttp2Session): object | undefined {
  if (session.destroyed) return undefined;
  const handle: unknown = Reflect.get(session.socket, "_handle");
  return typeof handle === "object" && handle !== null ? handle : undefined;
}

function callMethod(handle: object, method: "readStop" | "readStart"): void {
  const change: unknown = Reflect.get(handle, method);
  if (typeof change === "function") Reflect.apply(change, handle, []);
}

/**
 * Resets the stream unless it closes within `ms` milliseconds. Otherwise the data of a client that has closed its flow
 * control window would be held without limit. `onReset` is called before that. `code`: see `resetStream`.
 */
export function resetUnlessClosed(
  stream: ServerHttp2Stream | undefined,
  ms: number,
  clock: Clock,
  onReset?: () => void,
  code?: number,
): void {
  if (stream === undefined || stream.destroyed) return;
  const timer = clock.setTimeout(() => {
    onReset?.();
    resetStream(stream, code);
  }, ms);
  stream.once("close", () => timer.cancel());
}
