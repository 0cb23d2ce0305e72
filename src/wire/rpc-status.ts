import { durationOf } from "./encode.ts";
import type { Any } from "./generated/google/protobuf/Any.ts";
import type { BadRequest, BadRequest__Output } from "./generated/google/rpc/BadRequest.ts";
import type { ErrorInfo, ErrorInfo__Output } from "./generated/google/rpc/ErrorInfo.ts";
import type { RetryInfo, RetryInfo__Output } from "./generated/google/rpc/RetryInfo.ts";
import type { Status, Status__Output } from "./generated/google/rpc/Status.ts";
import { messageType } from "./methods.ts";

/** The `domain` of this service's errors. */
export const domain = "watchfanout";

/** The trailer with the encoded google.rpc.Status of an error. */
export const detailsKey = "grpc-status-details-bin";

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

export const statusType = messageType<Status, Status__Output>("google.rpc.Status");
const errorInfoType = messageType<ErrorInfo, ErrorInfo__Output>("google.rpc.ErrorInfo");
const retryInfoType = messageType<RetryInfo, RetryInfo__Output>("google.rpc.RetryInfo");
const badRequestType = messageType<BadRequest, BadRequest__Output>("google.rpc.BadRequest");

const typeUrl = "type.googleapis.com/google.rpc.";

export function encodeRpcStatus(status: RpcStatus): Uint8Array {
  const { code, reason, domain, metadata, retryDelayMs, field } = status;
  const info = errorInfoType.encode({ reason, domain, metadata });
  const details: Any[] = [{ type_url: `${typeUrl}ErrorInfo`, value: info }];
  if (retryDelayMs !== undefined) {
    const value = retryInfoType.encode({ retry_delay: durationOf(retryDelayMs) });
    details.push({ type_url: `${typeUrl}RetryInfo`, value });
  }
  if (field !== undefined) {
    const violation = { field, description: status.message };
    const value = badRequestType.encode({ field_violations: [violation] });
    details.push({ type_url: `${typeUrl}BadRequest`, value });
  }
  return statusType.encode({ code, message: status.message, details });
}

/** Returns undefined if the bytes are not a google.rpc.Status with an ErrorInfo. Skips details of other types. */
export function decodeRpcStatus(bytes: Uint8Array): RpcStatus | undefined {
  try {
    const status = statusType.decode(bytes);
    let info: ErrorInfo__Output | undefined;
    let retryDelayMs: number | undefined;
    let field: string | undefined;
    for (const { type_url, value } of status.details) {
      if (type_url === `${typeUrl}ErrorInfo`) {
        info = errorInfoType.decode(value);
      } else if (type_url === `${typeUrl}RetryInfo`) {
        const delay = retryInfoType.decode(value).retry_delay;
        if (delay !== null) {
          retryDelayMs = Math.max(0, Number(delay.seconds) * 1000 + delay.nanos / 1e6);
        }
      } else if (type_url === `${typeUrl}BadRequest`) {
        field = badRequestType.decode(value).field_violations[0]?.field;
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
