import { type Reason, WatchFanoutError } from "../../base/errors.ts";

/** The exit codes of the command. */
export const exitCodes = {
  done: 0,
  failed: 1,
  /** A flag, a variable or a line of the configuration is invalid. The command had no effect. */
  usage: 2,
  notFound: 3,
  conflict: 4,
  unavailable: 5,
  /** The caller has no right to this, or is not known. */
  denied: 6,
} as const;

const byReason: Partial<Record<Reason, number>> = {
  INVALID_REQUEST: exitCodes.usage,
  UNKNOWN_RESOURCE: exitCodes.notFound,
  OBJECT_NOT_FOUND: exitCodes.notFound,
  REVISION_CONFLICT: exitCodes.conflict,
  UPSTREAM_UNAVAILABLE: exitCodes.unavailable,
  NOT_READY: exitCodes.unavailable,
  DRAINING: exitCodes.unavailable,
  REVISION_TOO_NEW: exitCodes.unavailable,
  STORAGE_FULL: exitCodes.unavailable,
  TOO_MANY_STREAMS: exitCodes.unavailable,
  OVERLOADED: exitCodes.unavailable,
  UNAUTHENTICATED: exitCodes.denied,
  PERMISSION_DENIED: exitCodes.denied,
};

/** The exit code of a client command that failed with `error`. */
export function exitCodeOf(error: unknown): number {
  return error instanceof WatchFanoutError
    ? (byReason[error.reason] ?? exitCodes.failed)
    : exitCodes.failed;
}
