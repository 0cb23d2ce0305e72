import { fromJSON, type MessageTypeDefinition } from "@grpc/proto-loader";

/**
 * The rich error of gRPC: a google.rpc.Status with details, which travels as `grpc-status-details-bin`.
 * What of it this project reads and writes, with the field numbers of
 * https://github.com/googleapis/googleapis/blob/master/google/rpc/error_details.proto
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

interface Duration {
  readonly seconds: string | number;
  readonly nanos: number;
}
interface Detail {
  readonly type_url: string;
  readonly value: Buffer;
}
interface Status {
  readonly code: number;
  readonly message: string;
  readonly details: readonly Detail[];
}
interface ErrorInfo {
  readonly reason: string;
  readonly domain: string;
  /** A map, which on the wire is a list of its entries. */
  readonly metadata?: readonly { readonly key: string; readonly value: string }[];
}
interface RetryInfo {
  readonly retry_delay: Duration | null;
}
interface BadRequest {
  readonly field_violations: readonly { readonly field: string; readonly description: string }[];
}

// `Detail` is google.protobuf.Any by its fields, under a name that protobufjs does nothing special for.
const definitions = fromJSON(
  {
    nested: {
      Status: {
        fields: {
          code: { type: "int32", id: 1 },
          message: { type: "string", id: 2 },
          details: { rule: "repeated", type: "Detail", id: 3 },
        },
      },
      Detail: { fields: { type_url: { type: "string", id: 1 }, value: { type: "bytes", id: 2 } } },
      ErrorInfo: {
        fields: {
          reason: { type: "string", id: 1 },
          domain: { type: "string", id: 2 },
          metadata: { rule: "repeated", type: "Entry", id: 3 },
        },
      },
      Entry: { fields: { key: { type: "string", id: 1 }, value: { type: "string", id: 2 } } },
      RetryInfo: { fields: { retry_delay: { type: "Duration", id: 1 } } },
      Duration: { fields: { seconds: { type: "int64", id: 1 }, nanos: { type: "int32", id: 2 } } },
      BadRequest: { fields: { field_violations: { rule: "repeated", type: "Violation", id: 1 } } },
      Violation: {
        fields: { field: { type: "string", id: 1 }, description: { type: "string", id: 2 } },
      },
    },
  },
  { longs: String, defaults: true },
);

function message<T extends object>(name: string): MessageTypeDefinition<T, T> {
  return definitions[name] as unknown as MessageTypeDefinition<T, T>;
}

const statusType = message<Status>("Status");
const errorInfoType = message<ErrorInfo>("ErrorInfo");
const retryInfoType = message<RetryInfo>("RetryInfo");
const badRequestType = message<BadRequest>("BadRequest");

const typeUrl = "type.googleapis.com/google.rpc.";

export function encodeRpcStatus(status: RpcStatus): Buffer {
  const { code, reason, domain, metadata, retryDelayMs, field } = status;
  const entries = Object.entries(metadata).map(([key, value]) => ({ key, value }));
  const info = errorInfoType.serialize({ reason, domain, metadata: entries });
  const details: Detail[] = [{ type_url: `${typeUrl}ErrorInfo`, value: info }];
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

/** Undefined for what is no google.rpc.Status with an ErrorInfo. Details of other types are skipped. */
export function decodeRpcStatus(bytes: Buffer): RpcStatus | undefined {
  try {
    const status = statusType.deserialize(bytes);
    let info: ErrorInfo | undefined;
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
    const { reason, domain, metadata = [] } = info;
    return {
      code: status.code,
      message: status.message,
      reason,
      domain,
      metadata: Object.fromEntries(metadata.map(({ key, value }) => [key, value])),
      retryDelayMs,
      field,
    };
  } catch {
    return undefined;
  }
}
