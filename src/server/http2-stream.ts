import {
  constants,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";
import type { Socket } from "node:net";
import { type Server, status } from "@grpc/grpc-js";

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

/** How often a client may reset streams before Node.js closes its connection. */
export interface ResetBounds {
  /** So many at once. */
  readonly burst: number;
  /** So many a second in the long run. */
  readonly perSecond: number;
}

/**
 * Sets the bounds for servers that are bound later. grpc-js has no option for them, and Node.js's own of
 * 1,000 at once and 33 a second is less than what a client may have open: one that cancels its watches
 * would lose its connection, and with it all that others do over it.
 */
export function boundResets(server: Server, { burst, perSecond }: ResetBounds): void {
  const http2Options: unknown = Reflect.get(server, "commonServerOptions");
  if (typeof http2Options !== "object" || http2Options === null) return;
  Object.assign(http2Options, { streamResetBurst: burst, streamResetRate: perSecond });
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

function isHttp2Stream(value: unknown): value is ServerHttp2Stream {
  return (
    typeof value === "object" &&
    value !== null &&
    "rstCode" in value &&
    typeof Reflect.get(value, "close") === "function"
  );
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
