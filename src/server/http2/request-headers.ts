import type { IncomingHttpHeaders } from "node:http2";
import { maxTimerMs } from "../../base/clock.ts";

/**
 * How large the headers of a call may be, in bytes, 32 for each of them included: twice what gRPC libraries send
 * and take by default, and more than the longest tokens need.
 */
export const maxHeaderBytes = 16 * 1024;

/** A host name has at most 253 characters. */
const maxAuthority = 512;

const unitMs: Readonly<Record<string, number>> = {
  H: 3_600_000,
  M: 60_000,
  S: 1_000,
  m: 1,
  u: 1e-3,
  n: 1e-6,
};

/**
 * After how many milliseconds a call's client gives up; undefined: never. NaN for what is no timeout.
 */
export function timeoutOf(headers: IncomingHttpHeaders): number | undefined {
  const given = headers["grpc-timeout"];
  if (given === undefined) return undefined;
  const [, digits = "", unit = ""] = /^(\d{1,8})\s*([HMSmun])$/.exec(String(given)) ?? [];
  return digits === "" ? Number.NaN : Number(digits) * (unitMs[unit] ?? Number.NaN);
}

/**
 * Drops a deadline that is too far away for a timer. Node.js counts in 32 bits, so that such a call
 * would end at any time, mostly at once. A client keeps its own time besides.
 */
export function dropDistantDeadline(headers: IncomingHttpHeaders): void {
  const timeoutMs = timeoutOf(headers);
  if (timeoutMs !== undefined && timeoutMs > maxTimerMs) delete headers["grpc-timeout"];
}

/** Whether the call says that it is gRPC. */
export function isGrpc(headers: IncomingHttpHeaders): boolean {
  return headers["content-type"]?.startsWith("application/grpc") === true;
}

/** How the call's messages are compressed, if they say that they are. */
export function encodingOf(headers: IncomingHttpHeaders): string {
  return String(headers["grpc-encoding"] ?? "identity");
}

/**
 * Whether the headers are larger than is taken, or the name that the call is for than any name can be, which
 * Node.js keeps with the stream. A client is told the bound in HTTP/2's settings, but Node.js holds it to that only
 * once the client has acknowledged them.
 */
export function areTooLarge(headers: IncomingHttpHeaders): boolean {
  const { ":authority": authority, host } = headers;
  if ((authority?.length ?? 0) > maxAuthority || (host?.length ?? 0) > maxAuthority) return true;
  let bytes = 0;
  for (const name in headers) bytes += name.length + (headers[name]?.length ?? 0) + 32;
  return bytes > maxHeaderBytes;
}
