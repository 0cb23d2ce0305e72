import type { Http2Server } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";

/** What a client of HTTP/2 without TLS sends first begins with this (RFC 9113, 3.4), and no method of HTTP/1 does. */
const prefaceBegin = Buffer.from("PRI");

/**
 * Hands the server's future connections that speak HTTP/1 to `take`: with TLS those that did not negotiate HTTP/2, without
 * it those whose first bytes are not HTTP/2's. Call it after other listeners for connections are set up, except those that
 * have to see all of them.
 */
export function divertHttp1(
  server: Http2Server,
  isTls: boolean,
  take: (socket: Socket) => void,
): void {
  // With TLS "connection" is before the handshake.
  const event = isTls ? "secureConnection" : "connection";
  const listeners = server.listeners(event);
  server.removeAllListeners(event);
  const passOn = (socket: Socket): void => {
    for (const listener of listeners) Reflect.apply(listener, server, [socket]);
  };
  server.on(event, (socket: Socket | TLSSocket): void => {
    if (!("alpnProtocol" in socket)) onFirstBytes(socket, passOn, take);
    else if (socket.alpnProtocol === "h2") passOn(socket);
    else take(socket);
  });
}

/** Calls the function of the protocol that the first bytes are of, with a paused socket from which they can still be read. */
function onFirstBytes(
  socket: Socket,
  onHttp2: (socket: Socket) => void,
  onHttp1: (socket: Socket) => void,
): void {
  let received: Buffer = Buffer.alloc(0);
  const end = (): void => void socket.destroy();
  const receive = (chunk: Buffer): void => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    const length = Math.min(received.length, prefaceBegin.length);
    const mayBeHttp2 = received.compare(prefaceBegin, 0, length, 0, length) === 0;
    if (mayBeHttp2 && length < prefaceBegin.length) return;
    socket.pause();
    socket.off("data", receive).off("end", end).off("error", end);
    socket.unshift(received);
    (mayBeHttp2 ? onHttp2 : onHttp1)(socket);
  };
  socket.on("data", receive).on("end", end).on("error", end);
}
