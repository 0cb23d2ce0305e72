import { isIPv6, type Socket } from "node:net";
import { rawSocketOf } from "./http2-stream.ts";

/** The number of a connection to a Unix socket. Its client has no address. */
const unixNumber = Symbol("unixNumber");

/** Marks a connection as one to the server's Unix socket. `number` is different for each open connection. */
export function markUnixPeer(socket: Socket, number: number): void {
  Reflect.set(socket, unixNumber, number);
}

/** Whether the other end of a connection is connected to the server's Unix socket. */
export function isUnixPeer(socket: Socket): boolean {
  return Reflect.get(rawSocketOf(socket), unixNumber) !== undefined;
}

/**
 * What the other end of a connection is called in logs: its IP address and port, or `unix:NUMBER` on a Unix socket. No two
 * open connections have the same name. Empty if it has closed.
 */
export function peerNameOf(socket: Socket): string {
  const number: unknown = Reflect.get(rawSocketOf(socket), unixNumber);
  if (number !== undefined) return `unix:${number}`;
  const { remoteAddress, remotePort } = socket;
  if (remoteAddress === undefined) return "";
  return `${isIPv6(remoteAddress) ? `[${remoteAddress}]` : remoteAddress}:${remotePort}`;
}
