import type { Reason } from "../base/errors.ts";
import { codes } from "../base/grpc-codes.ts";
import type { ErrorReason } from "./generated/watchfanout/v1/ErrorReason.ts";

/**
 * The reasons that the contract has (proto/watchfanout/v1/error_reason.proto). Those that gRPC itself gives are for
 * clients that go by the reason alone; the client library sees the closest one of its own, as from any other server.
 */
export type WireReason = Exclude<ErrorReason, "ERROR_REASON_UNSPECIFIED" | number>;

/** The gRPC code of each reason, and the delay in milliseconds after which a retry is useful, if it ever is. */
export const wireForms: Readonly<
  Record<Reason & WireReason, { readonly code: number; readonly retryMs?: number }>
> = {
  INVALID_REQUEST: { code: codes.INVALID_ARGUMENT },
  UNKNOWN_RESOURCE: { code: codes.NOT_FOUND },
  OBJECT_NOT_FOUND: { code: codes.NOT_FOUND },
  UNKNOWN_WATCH: { code: codes.NOT_FOUND },
  WATCH_ID_TAKEN: { code: codes.ALREADY_EXISTS },
  REVISION_TOO_OLD: { code: codes.OUT_OF_RANGE },
  REVISION_TOO_NEW: { code: codes.UNAVAILABLE, retryMs: 500 },
  HISTORY_CHANGED: { code: codes.OUT_OF_RANGE },
  HISTORY_LOST: { code: codes.OUT_OF_RANGE },
  SLOW_CONSUMER: { code: codes.RESOURCE_EXHAUSTED },
  RESUME_LIMITED: { code: codes.RESOURCE_EXHAUSTED, retryMs: 5_000 },
  REVISION_CONFLICT: { code: codes.ABORTED },
  OUTCOME_UNKNOWN: { code: codes.UNKNOWN },
  LEASE_NOT_FOUND: { code: codes.FAILED_PRECONDITION },
  VALUE_TOO_LARGE: { code: codes.INVALID_ARGUMENT },
  LIST_TOO_LARGE: { code: codes.RESOURCE_EXHAUSTED },
  REQUEST_ID_REUSED: { code: codes.ALREADY_EXISTS },
  TRANSACTION_TOO_LARGE: { code: codes.INVALID_ARGUMENT },
  TOO_MANY_LEASES: { code: codes.RESOURCE_EXHAUSTED },
  STORAGE_FULL: { code: codes.UNAVAILABLE, retryMs: 10_000 },
  UPSTREAM_DENIED: { code: codes.INTERNAL },
  UPSTREAM_UNAVAILABLE: { code: codes.UNAVAILABLE, retryMs: 1_000 },
  INTERNAL: { code: codes.INTERNAL },
  NOT_READY: { code: codes.UNAVAILABLE, retryMs: 1_000 },
  DRAINING: { code: codes.UNAVAILABLE, retryMs: 1_000 },
  TOO_MANY_STREAMS: { code: codes.RESOURCE_EXHAUSTED, retryMs: 5_000 },
  OVERLOADED: { code: codes.UNAVAILABLE, retryMs: 5_000 },
  UNAUTHENTICATED: { code: codes.UNAUTHENTICATED },
  PERMISSION_DENIED: { code: codes.PERMISSION_DENIED },
};
