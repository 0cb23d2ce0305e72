import type { MessageTypeDefinition } from "@grpc/proto-loader";
import type { Any } from "./generated/google/protobuf/Any.ts";
import type { BadRequest, BadRequest__Output } from "./generated/google/rpc/BadRequest.ts";
import type { ErrorInfo, ErrorInfo__Output } from "./generated/google/rpc/ErrorInfo.ts";
import type { RetryInfo, RetryInfo__Output } from "./generated/google/rpc/RetryInfo.ts";
import type { Status, Status__Output } from "./generated/google/rpc/Status.ts";
import { definitions } from "./services.ts";

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
    const seconds = Math.floor(retryDelayMs / 1000);
    const nanos = Math.floor(retryDelayMs % 1000) * 1_000_000;
    const value = retryInfoType.serialize({ retry_delay: { seconds, nanos } });
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
