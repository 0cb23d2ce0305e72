import type { ServerHttp2Stream } from "node:http2";
import { parseTraceParent } from "@opentelemetry/core";
import { ownText } from "../../base/text-memory.ts";
import { socketOf } from "./frames/framed-connections.ts";
import { peerNameOf } from "./peer-name.ts";

/** The IP address and port of a stream's client, or `unix:NUMBER` on a Unix socket; empty if its connection has been closed. */
export function addressOf(stream: ServerHttp2Stream | undefined): string {
  if (stream?.session === undefined) return "";
  return peerNameOf(socketOf(stream.session));
}

/** The trace id in a `traceparent` header (W3C Trace Context); undefined if the header is absent or invalid. */
export function traceIdOf(traceparent: unknown): string | undefined {
  if (typeof traceparent !== "string") return undefined;
  const traceId = parseTraceParent(traceparent)?.traceId;
  // A copy, which does not keep the header alive.
  return traceId === undefined ? undefined : ownText(traceId);
}
