import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Socket } from "node:net";
import { type Metadata, type Server, status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
/*
 * The one file that reaches below grpc-js to the HTTP/2 that it stands on, which its public API does not
 * lead to. Each function says why it has to. They look for the shape that grpc-js 1.14 has, and do
 * nothing where they find another.
 */

export interface Http2Listeners {
  /** Is given all streams, in place of grpc-js, which never sees one. May change the headers. */
  readonly stream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;
  /** With TLS: before the handshake. */
  readonly connection: (socket: Socket) => void;
  /** A connection begins to speak HTTP/2. */
  readonly session: (session: ServerHttp2Session) => void;
  /** grpc-js listens to errors only while it binds; later ones would end the process. */
  readonly error: (error: Error) => void;
}

/** What a client may do below the level of calls. */
export interface Http2Bounds {
  /** How many streams it may reset at once before Node.js closes its connection. */
  readonly resetBurst: number;
  /** How many a second in the long run. */
  readonly resetsPerSecond: number;
  /**
   * How large the headers of a call may be, in bytes, 32 for each of them included. A call with larger ones is
   * reset with ENHANCE_YOUR_CALM.
   */
  readonly headerBytes: number;
}

/**
 * Sets the bounds for servers that are bound later. grpc-js has no options for them. Node.js's own of 1,000 resets
 * at once and 33 a second is less than what a client may have open: one that cancels its watches would lose its
 * connection, and with it all that others do over it. And its own of 64 KiB of headers is for each stream, some of
 * whose headers are kept for as long as it is open.
 */
export function boundHttp2(server: Server, bounds: Http2Bounds): void {
  const http2Options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof http2Options !== "object" || http2Options === null) return;
  const settings: unknown = Reflect.get(http2Options, "settings");
  Object.assign(http2Options, {
    streamResetBurst: bounds.resetBurst,
    streamResetRate: bounds.resetsPerSecond,
    settings: { ...(settings as object | undefined), maxHeaderListSize: bounds.headerBytes },
  });
}

/** Listens on all HTTP/2 servers of a bound grpc-js server, and returns how many there are. */
export function listenToHttp2(server: Server, listeners: Http2Listeners): number {
  const http2Servers: unknown = Reflect.get(server, "http2Servers");
  if (!(http2Servers instanceof Map)) return 0;
  for (const http2Server of http2Servers.keys() as Iterable<Http2Server>) {
    http2Server.removeAllListeners("stream");
    http2Server.on("stream", listeners.stream);
    http2Server.prependListener("connection", listeners.connection);
    http2Server.on("session", listeners.session);
    http2Server.on("error", listeners.error);
  }
  return http2Servers.size;
}

/** A stream that fails also closes, which is what is listened to; without a listener it would end the process. */
const ignore = (): void => {};

/**
 * The HTTP/2 stream of a call. Two things need it: to end a call whose client has shut its flow control,
 * where the status waits behind the data for ever, and to learn of the end of a call that is cancelled
 * just before its handler runs, of which grpc-js says nothing to the handler.
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
 * Lets go of what grpc-js keeps of a call's request for as long as the call lasts, once that has been read: the
 * client's metadata, the decoded message and the bytes that it came in. It has its own references to the first
 * two, so that they have to be emptied.
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

/** The part of `forgetRequest` for calls that have more than one request. */
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

/** Ends a stream that nobody has begun to serve, as `resetStream` does. */
export function refuseStream(stream: ServerHttp2Stream): void {
  stream.on("error", ignore);
  resetStream(stream);
}

/**
 * Closes a stream whose response has ended, and with it what the client still sends (RFC 9113, 8.1). In the next turn of
 * the event loop: in the same turn, Node.js 22 sends RST_STREAM ahead of the response, which the client then never gets.
 */
export function closeAfterResponse(stream: ServerHttp2Stream, clock: Clock): void {
  clock.setImmediate(() => {
    if (!stream.destroyed) stream.close(constants.NGHTTP2_NO_ERROR);
  });
}

/**
 * Ends a stream at once and drops what has not been sent. gRPC clients see ENHANCE_YOUR_CALM as the
 * status RESOURCE_EXHAUSTED.
 */
export function resetStream(stream: ServerHttp2Stream): void {
  if (!stream.destroyed) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
}

/** The gRPC status code that the server has ended the stream with; undefined if it has sent none. */
export function statusCodeOf(stream: ServerHttp2Stream): number | undefined {
  // Without any message the status is in the headers.
  const sent = stream.sentTrailers?.["grpc-status"] ?? stream.sentHeaders?.["grpc-status"];
  if (sent !== undefined) return Number(sent);
  return stream.rstCode === constants.NGHTTP2_ENHANCE_YOUR_CALM
    ? status.RESOURCE_EXHAUSTED
    : undefined;
}

/**
 * Reads nothing from the session's socket until `resumeReading`. Node.js has no API for that: a session takes over
 * its socket's handle, and the public `pause` of a socket throws then. From within an event of the session it takes
 * effect at once: what libuv has in its hand, up to 64 KiB, is still dealt with, and no more is read.
 */
export function pauseReading(session: ServerHttp2Session): void {
  const handle = handleOf(session);
  if (handle !== undefined) callMethod(handle, "readStop");
}

/**
 * Undoes `pauseReading`. Harmless where the session is gone.
 *
 * While Node.js has something to write that the socket does not take, it reads nothing either, and begins again by
 * itself once that is written. It must not be made to before: what it reads then it gathers without a bound, and copies
 * all of it with each further read.
 */
export function resumeReading(session: ServerHttp2Session): void {
  const handle = handleOf(session);
  if (handle === undefined || Number(Reflect.get(handle, "writeQueueSize")) > 0) return;
  callMethod(handle, "readStart");
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
 * Resets the stream unless it is closed within `ms`: what a client with shut flow control has been sent
 * would otherwise be held for it without limit.
 */
export function resetUnlessClosed(
  stream: ServerHttp2Stream | undefined,
  ms: number,
  clock: Clock,
): void {
  if (stream === undefined || stream.destroyed) return;
  const timer = clock.setTimeout(() => resetStream(stream), ms);
  stream.once("close", () => timer.cancel());
}
