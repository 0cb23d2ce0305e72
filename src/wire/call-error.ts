import { type Reason, WatchFanoutError } from "../base/errors.ts";
import { codes } from "../base/grpc-codes.ts";
import type { Status__Output } from "./generated/google/rpc/Status.ts";
import { wireForms } from "./reasons.ts";
import { decodeRpcStatus, detailsKey, domain, type RpcStatus, statusType } from "./rpc-status.ts";

/** How a call has failed. A ServiceError of grpc-js is one. */
export interface CallError extends Error {
  /** The status code of gRPC. */
  readonly code: number;
  readonly details: string;
  /** With the encoded google.rpc.Status, if the server has sent one, as `grpc-status-details-bin`. */
  readonly metadata?: { get(key: string): readonly unknown[] } | undefined;
}

/** Makes the error of a call. `encoded`: a google.rpc.Status. */
export function callError(code: number, details: string, encoded?: Uint8Array): CallError {
  const metadata = {
    get: (key: string) => (key === detailsKey && encoded !== undefined ? [encoded] : []),
  };
  return Object.assign(new Error(details), { code, details, metadata });
}

/** The encoded google.rpc.Status of a message of a stream as the error of a call that ends with it. */
export function callErrorOf(encoded: Uint8Array): CallError {
  const said = decodeRpcStatus(encoded);
  const details = said?.message ?? "It sent a status without details.";
  return callError(said?.code ?? codes.INTERNAL, details, encoded);
}

/**
 * Translates the status that ended a client's call. If the status is not from a watch-fanout server (no connection, a
 * deadline, a proxy), its reason is the closest one. The ServiceError is the `cause`.
 */
export function errorOf(failure: CallError): WatchFanoutError {
  const said = detailsOf(failure);
  if (said !== undefined && isReason(said.reason)) {
    return new WatchFanoutError(said.reason, said.message, {
      metadata: said.metadata,
      ...(said.field === undefined ? {} : { field: said.field }),
      cause: failure,
    });
  }
  const text = failure.details === "" ? failure.message : failure.details;
  return new WatchFanoutError(closestReason(failure), text, { cause: failure });
}

/** The error of a status within a message, as `errorOf` has that of a call. */
export function errorOfStatus(status: Status__Output): WatchFanoutError {
  return errorOf(callErrorOf(statusType.encode(status)));
}

/** Whether a watch-fanout server sent this status, with a reason that is known here. */
export function saysReason(failure: CallError): boolean {
  const said = detailsOf(failure);
  return said !== undefined && isReason(said.reason);
}

/** The delay that the server asks for before a retry, in milliseconds; undefined if it does not ask for one. */
export function retryDelayMs(failure: CallError): number | undefined {
  return detailsOf(failure)?.retryDelayMs;
}

function detailsOf(failure: CallError): RpcStatus | undefined {
  // An error that grpc-js itself makes may have no metadata, unlike its type.
  const value = failure.metadata?.get(detailsKey)[0];
  const details = value instanceof Uint8Array ? decodeRpcStatus(value) : undefined;
  return details?.domain === domain ? details : undefined;
}

function isReason(text: string): text is Reason {
  return Object.hasOwn(wireForms, text);
}

/**
 * grpc-js's errors for calls whose connection was lost that it does not take for that:
 * - It began the call just after the connection was lost or got a GOAWAY: since Node.js 24 that does not throw.
 * - The connection got a GOAWAY, and was reset while the call was in progress: Node.js closes the call without an error.
 */
const connectionLost =
  /internal client error: (The session has been destroyed|New streams cannot be created after receiving a GOAWAY)|^Received RST_STREAM with code 0 \(Call ended without gRPC status\)$/;

function closestReason(failure: CallError): Reason {
  switch (failure.code) {
    case codes.CANCELLED:
    case codes.DEADLINE_EXCEEDED:
    case codes.UNAVAILABLE:
      return "UPSTREAM_UNAVAILABLE";
    case codes.INTERNAL:
      return connectionLost.test(failure.details) ? "UPSTREAM_UNAVAILABLE" : "INTERNAL";
    case codes.INVALID_ARGUMENT:
      return "INVALID_REQUEST";
    case codes.RESOURCE_EXHAUSTED:
      // gRPC's own refusal of a message, or ENHANCE_YOUR_CALM on a stream that took nothing.
      return /larger/i.test(failure.details) ? "VALUE_TOO_LARGE" : "SLOW_CONSUMER";
    case codes.UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case codes.PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    default:
      return "INTERNAL";
  }
}
