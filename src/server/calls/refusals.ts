import { randomUUID } from "node:crypto";
import { Metadata, status } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { type Reason, tooManyRequestBytes, WatchFanoutError } from "../../base/errors.ts";
import { reasonMetadata, statusOf, type WireStatus } from "../../wire/errors.ts";
import type { WireReason } from "../../wire/reasons.ts";
import type { LedgerBounds, ReachedBound } from "../kernel/ledger.ts";
import type { Caller } from "../limits/callers.ts";
import { type TracedCall, traceFields } from "./call-span.ts";
import { RefusedRequest } from "./server-call.ts";

/** What was evicted from, for the text of an error. */
interface Evicting {
  readonly bounds: LedgerBounds;
}

/**
 * A status of the code and text that gRPC libraries use. Without a reason it is as etcd's server sends it; the calls of
 * this service's own API have one.
 */
export function refused(code: status, details: string, reason?: WireReason): WireStatus {
  const metadata = reason === undefined ? new Metadata() : reasonMetadata(code, reason, details);
  return { code, details, metadata };
}

/** With the text that gRPC libraries use, since clients recognise it. */
export function tooLarge(size: number | "more", maxBytes: number): WireStatus {
  const details = `Received message larger than max (${size} vs ${maxBytes})`;
  return refused(status.RESOURCE_EXHAUSTED, details, "VALUE_TOO_LARGE");
}

/** A request that ended within a message. `size`: the message's, in bytes, with its prefix. */
export function incomplete(length: number, size: number): WireStatus {
  const details = `Received no whole request message: ${length} of ${size} bytes`;
  return refused(status.INVALID_ARGUMENT, details, "INVALID_REQUEST");
}

/** The status of a call that ends for a reason. `limit` is the bound that was reached, for programs. */
function ended(reason: Reason, message: string, limit?: number): WireStatus {
  const options = limit === undefined ? {} : { metadata: { limit: String(limit) } };
  return statusOf(new WatchFanoutError(reason, message, options));
}

/** A request that was evicted from `pool` to make room for others. It had no effect. */
export function outOfRequestRoom({ bounds }: Evicting): WireStatus {
  const message =
    "The requests of this connection that are incomplete or not handled yet exceed their bound: " +
    `${bounds.maxPerOwner} bytes, or less while the bound of all connections together is ` +
    "reached. Nothing was done. Send fewer large requests at once.";
  return ended("TOO_MANY_STREAMS", message, bounds.maxPerOwner);
}

/** A call whose charge in `retained` was evicted: its request takes the room of others. */
export function tooMuchRetained({ bounds }: Evicting): WatchFanoutError {
  return tooManyRequestBytes(bounds.maxPerOwner ?? Infinity);
}

/** A call whose request had not arrived, and that was ended to make room for others. It had no effect. */
export function tooManyIncomplete(
  { max, maxPerOwner }: LedgerBounds,
  reached: ReachedBound,
  { title }: Caller,
): WireStatus {
  const [whose, limit] = reached === "owner" ? [title, maxPerOwner] : ["all callers together", max];
  const message =
    `The limit of calls whose request has not arrived, of ${whose}, is ${limit}. Nothing was done. ` +
    "Send the request with each call that you open, or open fewer at once.";
  return ended("TOO_MANY_STREAMS", message);
}

/** A call whose token was evicted, before it was verified, to make room for others. It had no effect. */
export function outOfTokenRoom(maxBytesPerConnection: number): WireStatus {
  const message =
    "The tokens of this connection that wait to be verified exceed their bound: " +
    `${maxBytesPerConnection} bytes, or less while the bound of all connections together is ` +
    "reached. Nothing was done. Make fewer calls at once, or use one token for them.";
  return ended("TOO_MANY_STREAMS", message, maxBytesPerConnection);
}

/** A request that waited behind responses which its client does not accept. It had no effect. */
export function responseNotAccepted(ms: number): WireStatus {
  const message =
    `This call waited ${ms / 1_000} s for the client to accept its other responses. Nothing was done. ` +
    "Read faster, or make fewer calls at once.";
  return ended("SLOW_CONSUMER", message);
}

/** A stream of requests whose client does not accept the next response. */
export function nextNotAccepted(): WireStatus {
  const message =
    "The client has not accepted the next response of this call in time. Call again, and read the responses.";
  return ended("SLOW_CONSUMER", message);
}

/** The server shuts down before the client has sent its request. */
export function drainingUnread(): WireStatus {
  const message =
    "This replica is shutting down, and the request has not arrived. Retry on another replica.";
  return ended("DRAINING", message);
}

/** A request, or the next request of a stream, that does not arrive in time. */
export function tookTooLong(ms: number): WireStatus {
  const details = `The request did not arrive within ${ms / 1_000} s`;
  return refused(status.DEADLINE_EXCEEDED, details, "DEADLINE_EXCEEDED");
}

/**
 * Turns anything thrown into the error that the client gets. An internal error is logged with an id, and the client gets
 * only the id. `call` is the call that it ends.
 */
export function toClientError(
  error: unknown,
  method: string,
  logger: Logger,
  call?: TracedCall,
): WatchFanoutError {
  if (error instanceof WatchFanoutError) {
    if (error.reason !== "INTERNAL" || error.metadata["id"] !== undefined) return error;
  }
  const id = randomUUID();
  const fields = { err: error, id, method, ...traceFields(call) };
  logger.error(fields, "a call failed because of an internal error");
  return new WatchFanoutError(
    "INTERNAL",
    `The service failed because of an internal error. Report it with the id ${id}, which is in its log.`,
    { metadata: { id }, cause: error },
  );
}

/** The status that anything thrown ends `call` with: that of a refused request, otherwise that of `toClientError`. */
export function endingOf(
  error: unknown,
  method: string,
  logger: Logger,
  call: TracedCall,
): WireStatus {
  if (error instanceof RefusedRequest) return error.status;
  return statusOf(toClientError(error, method, logger, call));
}
