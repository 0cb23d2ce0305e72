import type { ServerHttp2Stream } from "node:http2";
import { isIPv6 } from "node:net";
import { ownText } from "../../base/text-memory.ts";
import { socketOf } from "./frames/framed-connections.ts";

/** The IP address and port of a stream's client; empty if its connection has been closed. */
export function addressOf(stream: ServerHttp2Stream | undefined): string {
  if (stream?.session === undefined) return "";
  const { remoteAddress, remotePort } = socketOf(stream.session);
  if (remoteAddress === undefined) return "";
  return `${isIPv6(remoteAddress) ? `[${remoteAddress}]` : remoteAddress}:${remotePort}`;
}

/** The trace id in a `traceparent` header (W3C Trace Context); undefined if the header is absent or invalid. */
export function traceIdOf(traceparent: unknown): string | undefined {
  const match = /^[\da-f]{2}-([\da-f]{32})-[\da-f]{16}-[\da-f]{2}/.exec(String(traceparent));
  // A copy, which does not keep the header alive.
  return match?.[1] === undefined ? undefined : ownText(match[1]);
}
