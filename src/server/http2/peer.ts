import type { ServerHttp2Stream } from "node:http2";
import { isIPv6, type Socket } from "node:net";
import { TLSSocket } from "node:tls";
import type { PeerFacts } from "../../identity/peer.ts";
import { socketOf } from "./frames/framed-connection.ts";

/** The numbers of connections to a Unix socket, whose clients have no address. */
const unixNumbers = new WeakMap<Socket, number>();

/** Marks a connection as one to the server's Unix socket. `number` is different for each open connection. */
export function markUnixPeer(socket: Socket, number: number): void {
  unixNumbers.set(socket, number);
}

/**
 * What the other end of a connection is called in logs: its IP address and port, or `unix:NUMBER` on a Unix socket. No two
 * open connections have the same name. Empty if it has closed.
 */
export function peerNameOf(socket: Socket): string {
  const number = unixNumbers.get(rawSocketOf(socket));
  if (number !== undefined) return `unix:${number}`;
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined) return "";
  return withPort(remoteAddress, `${remotePort}`);
}

/** An IP address and a port in one text, as in a URL. */
export function withPort(address: string, port: string): string {
  return `${isIPv6(address) ? `[${address}]` : address}:${port}`;
}

/** The name (`peerNameOf`) of a stream's client; empty if its connection has been closed. */
export function addressOf({ session }: ServerHttp2Stream): string {
  return session === undefined ? "" : peerNameOf(socketOf(session));
}

/**
 * What a connection shows of its client. Undefined if it is closed, and for a socket that has no address and is not a Unix
 * socket: a caller whose certificate could not be seen must not count as one without a certificate.
 */
export function peerFactsOf(socket: Socket): PeerFacts | undefined {
  if (socket.destroyed) return undefined;
  const address = socket.remoteAddress;
  if (address === undefined && !unixNumbers.has(rawSocketOf(socket))) return undefined;
  if (!(socket instanceof TLSSocket)) {
    return { address, certificate: undefined, isCertificateTrusted: false };
  }
  return {
    address,
    certificate: socket.getPeerX509Certificate(),
    // Without a certificate it can be true as well: for a resumed session of TLS 1.3.
    isCertificateTrusted: socket.authorized,
  };
}

/**
 * The accepted socket below a socket of TLS; otherwise the socket itself.
 *
 * This is the only private field of Node.js that is used: a TLS server makes the socket of TLS itself, does not say which
 * connection it is of, and a socket whose handshake has failed has no address any more. Without the field, connections
 * with TLS would have no name in logs once they have failed, and those on one Unix socket could not be distinguished.
 */
export function rawSocketOf(socket: Socket): Socket {
  const parent: unknown = Reflect.get(socket, "_parent");
  return typeof parent === "object" && parent !== null ? (parent as Socket) : socket;
}
