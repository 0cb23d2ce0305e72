import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import type { MessageTypeDefinition } from "@grpc/proto-loader";
import { type Reason, WatchFanoutError } from "../base/errors.ts";
import { durationOf } from "./encode.ts";
import type { Any, Any__Output } from "./generated/google/protobuf/Any.ts";
import type { BadRequest, BadRequest__Output } from "./generated/google/rpc/BadRequest.ts";
import type { ErrorInfo, ErrorInfo__Output } from "./generated/google/rpc/ErrorInfo.ts";
import type { RetryInfo, RetryInfo__Output } from "./generated/google/rpc/RetryInfo.ts";
import type { Status, Status__Output } from "./generated/google/rpc/Status.ts";
import type { ErrorReason } from "./generated/watchfanout/v1/ErrorReason.ts";
import { definitions } from "./services.ts";

const domain = "watchfanout";
const detailsKey = "grpc-status-details-bin";

/** The gRPC code of each reason, and the delay in milliseconds after which a retry is useful, if it ever is. */
const wireForms: Readonly<
  Record<Reason & WireReason, { readonly code: status; readonly retryMs?: number }>
> = {
  INVALID_REQUEST: { code: status.INVALID_ARGUMENT },
  UNKNOWN_RESOURCE: { code: status.NOT_FOUND },
  OBJECT_NOT_FOUND: { code: status.NOT_FOUND },
  UNKNOWN_WATCH: { code: status.NOT_FOUND },
  WATCH_ID_TAKEN: { code: status.ALREADY_EXISTS },
  REVISION_TOO_OLD: { code: status.OUT_OF_RANGE },
  REVISION_TOO_NEW: { code: status.UNAVAILABLE, retryMs: 500 },
  HISTORY_CHANGED: { code: status.OUT_OF_RANGE },
  HISTORY_LOST: { code: status.OUT_OF_RANGE },
  SLOW_CONSUMER: { code: status.RESOURCE_EXHAUSTED },
  RESUME_LIMITED: { code: status.RESOURCE_EXHAUSTED, retryMs: 5_000 },
  REVISION_CONFLICT: { code: status.ABORTED },
  OUTCOME_UNKNOWN: { code: status.UNKNOWN },
  LEASE_NOT_FOUND: { code: status.FAILED_PRECONDITION },
  VALUE_TOO_LARGE: { code: status.INVALID_ARGUMENT },
  LIST_TOO_LARGE: { code: status.RESOURCE_EXHAUSTED },
  REQUEST_ID_REUSED: { code: status.ALREADY_EXISTS },
  TRANSACTION_TOO_LARGE: { code: status.INVALID_ARGUMENT },
  TOO_MANY_LEASES: { code: status.RESOURCE_EXHAUSTED },
  STORAGE_FULL: { code: status.UNAVAILABLE, retryMs: 10_000 },
  UPSTREAM_DENIED: { code: status.INTERNAL },
  UPSTREAM_UNAVAILABLE: { code: status.UNAVAILABLE, retryMs: 1_000 },
  INTERNAL: { code: status.INTERNAL },
  NOT_READY: { code: status.UNAVAILABLE, retryMs: 1_000 },
  DRAINING: { code: status.UNAVAILABLE, retryMs: 1_000 },
  TOO_MANY_STREAMS: { code: status.RESOURCE_EXHAUSTED, retryMs: 5_000 },
  OVERLOADED: { code: status.UNAVAILABLE, retryMs: 5_000 },
  UNAUTHENTICATED: { code: status.UNAUTHENTICATED },
  PERMISSION_DENIED: { code: status.PERMISSION_DENIED },
};

/**
 * The reasons that the contract has (proto/watchfanout/v1/error_reason.proto). Those that gRPC itself gives are for
 * clients that go by the reason alone; the client library sees the closest one of its own, as from any other server.
 */
export type WireReason = Exclude<ErrorReason, "ERROR_REASON_UNSPECIFIED" | number>;

/** The end of a call as grpc-js takes it. */
export interface WireStatus {
  readonly code: status;
  readonly details: string;
  readonly metadata: Metadata;
}

// Some versions of gRPC's C core refuse more than 8 KiB of trailers. These have the message up to three times:
// percent-encoded, and twice in base64.
const maxMessageBytes = 600;
const maxMetadataBytes = 200;

/**
 * The status that a client gets for `error`. The delay in RetryInfo has a jitter of half of it in either direction, so
 * that clients that were refused together do not retry together; `random` returns 0 to 1.
 */
export function statusOf(error: WatchFanoutError, random: () => number = Math.random): WireStatus {
  const { code, retryMs: usualMs } = wireForms[error.reason];
  const retryMs = error.retryMs ?? usualMs;
  const message = presentable(error.message, maxMessageBytes);
  const errorMetadata: Record<string, string> = {};
  for (const [name, value] of Object.entries(error.metadata)) {
    errorMetadata[name] = presentable(value, maxMetadataBytes);
  }
  const metadata = new Metadata();
  metadata.set(
    detailsKey,
    encodeRpcStatus({
      code,
      message,
      reason: error.reason,
      domain,
      metadata: errorMetadata,
      retryDelayMs: retryMs === undefined ? undefined : Math.round(retryMs * (0.5 + random())),
      field: error.field,
    }),
  );
  return { code, details: message, metadata };
}

/** The metadata of a status that has a code of gRPC's own for this reason. */
export function reasonMetadata(code: status, reason: WireReason, text: string): Metadata {
  const metadata = new Metadata();
  const message = presentable(text, maxMessageBytes);
  const rest = { domain, metadata: {}, retryDelayMs: undefined, field: undefined };
  metadata.set(detailsKey, encodeRpcStatus({ code, message, reason, ...rest }));
  return metadata;
}

/** A status of `statusOf` as an encoded google.rpc.Status, for a message of a stream. */
export function encodedStatus({ metadata }: WireStatus): Uint8Array {
  return metadata.get(detailsKey)[0] as Buffer;
}

/** The details of a status, each an encoded message of the type that its URL names; none if it has none. */
export function detailsIn(status: WireStatus): readonly Any__Output[] {
  const encoded = encodedStatus(status) as Buffer | undefined;
  return encoded === undefined ? [] : statusType.deserialize(encoded).details;
}

/** The encoded google.rpc.Status of a message of a stream as the error of a call that ends with it. */
export function serviceErrorOf(encoded: Buffer): ServiceError {
  const said = decodeRpcStatus(encoded);
  const details = said?.message ?? "It sent a status without details.";
  const metadata = new Metadata();
  metadata.set(detailsKey, encoded);
  return Object.assign(new Error(details), {
    ...{ code: said?.code ?? status.INTERNAL, details, metadata },
  });
}

/**
 * Returns text that can be sent: a lone surrogate throws inside grpc-js, where no handler catches it, and clients
 * refuse a trailer that is too long. Truncates between characters.
 */
function presentable(text: string, maxBytes: number): string {
  const wellFormed = text.toWellFormed();
  if (Buffer.byteLength(wellFormed) <= maxBytes) return wellFormed;
  let bytes = 3; // of the ellipsis
  let kept = "";
  for (const character of wellFormed) {
    bytes += Buffer.byteLength(character);
    if (bytes > maxBytes) break;
    kept += character;
  }
  return `${kept}…`;
}

/**
 * Translates the status that ended a client's call. If the status is not from a watch-fanout server (no connection, a
 * deadline, a proxy), its reason is the closest one. The ServiceError is the `cause`.
 */
export function errorOf(failure: ServiceError): WatchFanoutError {
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
  return errorOf(serviceErrorOf(statusType.serialize(status)));
}

/** Whether a watch-fanout server sent this status, with a reason that is known here. */
export function saysReason(failure: ServiceError): boolean {
  const said = detailsOf(failure);
  return said !== undefined && isReason(said.reason);
}

/** The delay that the server asks for before a retry, in milliseconds; undefined if it does not ask for one. */
export function retryDelayMs(failure: ServiceError): number | undefined {
  return detailsOf(failure)?.retryDelayMs;
}

function detailsOf(failure: ServiceError): RpcStatus | undefined {
  // An error that the client itself makes may have no metadata, unlike its type.
  const metadata: Metadata | undefined = failure.metadata;
  const value = metadata?.get(detailsKey)[0];
  const details = Buffer.isBuffer(value) ? decodeRpcStatus(value) : undefined;
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

function closestReason(failure: ServiceError): Reason {
  switch (failure.code) {
    case status.CANCELLED:
    case status.DEADLINE_EXCEEDED:
    case status.UNAVAILABLE:
      return "UPSTREAM_UNAVAILABLE";
    case status.INTERNAL:
      return connectionLost.test(failure.details) ? "UPSTREAM_UNAVAILABLE" : "INTERNAL";
    case status.INVALID_ARGUMENT:
      return "INVALID_REQUEST";
    case status.RESOURCE_EXHAUSTED:
      // gRPC's own refusal of a message, or ENHANCE_YOUR_CALM on a stream that took nothing.
      return /larger/i.test(failure.details) ? "VALUE_TOO_LARGE" : "SLOW_CONSUMER";
    case status.UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    case status.PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    default:
      return "INTERNAL";
  }
}

/** The text of a status from its header: gRPC percent-encodes it. */
export function decodedDetails(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/**
 * The part of gRPC's rich error that this project uses: a google.rpc.Status with details, sent as
 * `grpc-status-details-bin`.
 */
export interface RpcStatus {
  /** The gRPC status code. */
  readonly code: number;
  readonly message: string;
  /** From ErrorInfo. */
  readonly reason: string;
  readonly domain: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** From RetryInfo, in whole milliseconds. */
  readonly retryDelayMs: number | undefined;
  /** From BadRequest: the field that is wrong. */
  readonly field: string | undefined;
}

function message<Input, Output>(name: string): MessageTypeDefinition<Input, Output> {
  return definitions[name] as unknown as MessageTypeDefinition<Input, Output>;
}

const statusType = message<Status, Status__Output>("google.rpc.Status");
const errorInfoType = message<ErrorInfo, ErrorInfo__Output>("google.rpc.ErrorInfo");
const retryInfoType = message<RetryInfo, RetryInfo__Output>("google.rpc.RetryInfo");
const badRequestType = message<BadRequest, BadRequest__Output>("google.rpc.BadRequest");

const typeUrl = "type.googleapis.com/google.rpc.";

export function encodeRpcStatus(status: RpcStatus): Buffer {
  const { code, reason, domain, metadata, retryDelayMs, field } = status;
  const info = errorInfoType.serialize({ reason, domain, metadata });
  const details: Any[] = [{ type_url: `${typeUrl}ErrorInfo`, value: info }];
  if (retryDelayMs !== undefined) {
    const value = retryInfoType.serialize({ retry_delay: durationOf(retryDelayMs) });
    details.push({ type_url: `${typeUrl}RetryInfo`, value });
  }
  if (field !== undefined) {
    const violation = { field, description: status.message };
    const value = badRequestType.serialize({ field_violations: [violation] });
    details.push({ type_url: `${typeUrl}BadRequest`, value });
  }
  return statusType.serialize({ code, message: status.message, details });
}

/** Returns undefined if the bytes are not a google.rpc.Status with an ErrorInfo. Skips details of other types. */
export function decodeRpcStatus(bytes: Buffer): RpcStatus | undefined {
  try {
    const status = statusType.deserialize(bytes);
    let info: ErrorInfo__Output | undefined;
    let retryDelayMs: number | undefined;
    let field: string | undefined;
    for (const { type_url, value } of status.details) {
      if (type_url === `${typeUrl}ErrorInfo`) {
        info = errorInfoType.deserialize(value);
      } else if (type_url === `${typeUrl}RetryInfo`) {
        const delay = retryInfoType.deserialize(value).retry_delay;
        if (delay !== null) {
          retryDelayMs = Math.max(0, Number(delay.seconds) * 1000 + delay.nanos / 1e6);
        }
      } else if (type_url === `${typeUrl}BadRequest`) {
        field = badRequestType.deserialize(value).field_violations[0]?.field;
      }
    }
    if (info === undefined) return undefined;
    const { reason, domain, metadata } = info;
    return {
      code: status.code,
      message: status.message,
      reason,
      domain,
      metadata,
      retryDelayMs,
      field,
    };
  } catch {
    return undefined;
  }
}
