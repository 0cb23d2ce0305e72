import type { Http2Server, Http2Session, ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../base/clock.ts";
import type { FramingContext } from "./connection-writer.ts";
import { EndingConnections } from "./ending-connections.ts";
import { FlushQueue } from "./flush-queue.ts";
import { FrameBatch } from "./frame-batch.ts";
import { FramedConnection } from "./framed-connection.ts";
import { type ResponseWriter, StreamWriter } from "./response-writer.ts";
import { SharedFrame } from "./shared-frame.ts";
import { WriteBuffers } from "./write-buffers.ts";

const connections = new WeakMap<Http2Session, FramedConnection>();

/**
 * Sends the DATA frames of the server's future connections itself. Node.js documents that any Duplex may be passed to a
 * server's listeners for connections, as here. Call it before other listeners for sessions are added.
 */
export function frameConnections(
  server: Http2Server,
  options: { readonly clock: Clock; readonly isTls: boolean; readonly maxStreams: number },
): void {
  const { clock, isTls, maxStreams } = options;
  const context: FramingContext = {
    clock,
    flushQueue: new FlushQueue(clock),
    batch: new FrameBatch(),
    endings: new EndingConnections(clock),
    sharedFrame: new SharedFrame(),
    writeBuffers: new WriteBuffers(),
    maxStreams,
  };
  let begun: FramedConnection | undefined;
  server.on("session", (session) => {
    if (begun === undefined) return;
    connections.set(session, begun);
    begun.begin(session);
  });
  // With TLS "connection" is before the handshake.
  const event = isTls ? "secureConnection" : "connection";
  const listeners = server.listeners(event);
  server.removeAllListeners(event);
  server.on(event, (socket: Socket | TLSSocket): void => {
    // Node.js refuses a TLS connection that did not negotiate HTTP/2.
    const isOther = "alpnProtocol" in socket && socket.alpnProtocol !== "h2";
    const passed = isOther ? socket : new FramedConnection(socket, context);
    begun = isOther ? undefined : (passed as FramedConnection);
    for (const listener of listeners) Reflect.apply(listener, server, [passed]);
    begun = undefined;
  });
}

/** The connection of a session whose DATA frames the server writes; undefined: Node.js writes them. */
export function framedConnectionOf(session: Http2Session): FramedConnection | undefined {
  return connections.get(session);
}

/** Whether a session is closed, or its streams are being closed and then itself. */
export function isEnding(session: Http2Session): boolean {
  return session.destroyed || connections.get(session)?.isEnding === true;
}

/** The socket of a session's client. */
export function socketOf(session: Http2Session): Socket | TLSSocket {
  return connections.get(session)?.socket ?? session.socket;
}

/** What writes the response of a stream: DATA frames between those of nghttp2, or else the public API of Node.js. */
export function responseWriterOf(stream: ServerHttp2Stream): ResponseWriter {
  const { session, id } = stream;
  const connection = session === undefined ? undefined : connections.get(session);
  if (connection === undefined || id === undefined) return new StreamWriter(stream);
  return connection.writerOf(id);
}
