import type { IncomingHttpHeaders } from "node:http2";
import { parseTraceParent } from "@opentelemetry/core";
import { maxTimerMs } from "../../base/clock.ts";
import { ownText, textBytes } from "../../base/text-memory.ts";

/**
 * Maximum size of a call's headers, in bytes, with 32 added for each header: twice the default of gRPC libraries, and
 * more than the longest tokens need.
 */
export const maxHeaderBytes = 16 * 1024;

/** What HTTP/2 counts for each header beside its text, in bytes. */
export const headerOverhead = 32;

/** A host name has at most 253 characters. */
const maxAuthority = 512;

/** "http" or "https". */
const maxScheme = 16;

/** The compressions of gRPC messages. */
const encodings = ["identity", "deflate", "gzip"];

/** Maximum length of an unknown compression's name in an error text. */
const maxEncoding = 32;

const unitMs: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/** The call's timeout in milliseconds; undefined without one, NaN if the header is invalid. */
export function timeoutOf(headers: IncomingHttpHeaders): number | undefined {
  const given = headers["grpc-timeout"];
  if (given === undefined) return undefined;
  const [, digits = "", unit = ""] = /^(\d{1,8})\s*([HMSmun])$/.exec(String(given)) ?? [];
  return digits === "" ? Number.NaN : Number(digits) * (unitMs[unit] ?? Number.NaN);
}

/**
 * Drops a timeout that is too long for a timer of Node.js, which has 31 bits of milliseconds and would fire at once. The
 * client still applies its own deadline.
 */
export function dropDistantDeadline(headers: IncomingHttpHeaders): void {
  const timeoutMs = timeoutOf(headers);
  if (timeoutMs !== undefined && timeoutMs > maxTimerMs) delete headers["grpc-timeout"];
}

/** Whether the content type is gRPC's, not that of gRPC-Web. */
export function isGrpc(headers: IncomingHttpHeaders): boolean {
  const type = headers["content-type"];
  return type?.startsWith("application/grpc") === true && !type.startsWith("application/grpc-web");
}

/**
 * The compression of those messages that have the compressed flag. Never the header's own text, since a call retains it
 * until its request is complete: an unknown name is cut to 32 characters.
 */
export function encodingOf(headers: IncomingHttpHeaders): string {
  const given = headers["grpc-encoding"];
  if (given === undefined) return "identity";
  return encodings.find((name) => name === given) ?? ownText(String(given).slice(0, maxEncoding));
}

/** Size of a call's headers as HTTP/2 counts it, in bytes: names, values, and 32 for each header. */
export function headerBytes(headers: IncomingHttpHeaders): number {
  let bytes = 0;
  for (const name in headers) bytes += name.length + (headers[name]?.length ?? 0) + headerOverhead;
  return bytes;
}

/**
 * Whether the headers exceed `maxHeaderBytes`, or one that Node.js retains with the stream exceeds its own bound: 512
 * characters of the authority, 16 of the scheme. The bound is in the HTTP/2 settings, but Node.js enforces it only once
 * the client has acknowledged them.
 */
export function exceedsHeaderLimit(headers: IncomingHttpHeaders): boolean {
  const { ":authority": authority, ":scheme": scheme, host } = headers;
  if ((authority?.length ?? 0) > maxAuthority || (host?.length ?? 0) > maxAuthority) return true;
  if ((scheme?.length ?? 0) > maxScheme) return true;
  return headerBytes(headers) > maxHeaderBytes;
}

/** Memory of the headers that Node.js retains with the stream, in bytes: the authority and the scheme. */
export function retainedHeaderBytes(headers: IncomingHttpHeaders): number {
  const authority = headers[":authority"] ?? headers.host ?? "";
  return textBytes(authority) + textBytes(headers[":scheme"] ?? "");
}

/** The headers without those that name the caller to this server, which no other server must see. */
export function withoutCredentials(headers: IncomingHttpHeaders): IncomingHttpHeaders {
  const { authorization: _, "x-forwarded-client-cert": __, ...others } = headers;
  return others;
}

/** The trace id in a `traceparent` header (W3C Trace Context); undefined if the header is absent or invalid. */
export function traceIdOf(traceparent: unknown): string | undefined {
  if (typeof traceparent !== "string") return undefined;
  const traceId = parseTraceParent(traceparent)?.traceId;
  // A copy, which does not keep the header alive.
  return traceId === undefined ? undefined : ownText(traceId);
}
