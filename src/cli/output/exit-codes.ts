import { type Reason, WatchFanoutError } from "../../base/errors.ts";

/** The exit codes of the command. */
export const exitCodes = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  conflict: 4,
  unavailable: 5,
  denied: 6,
  unknown: 7,
} as const;

/** What each code means, in the help and in docs/reference/commands.md. */
export const exitCodeMeanings: Readonly<Record<keyof typeof exitCodes, string>> = {
  done: "done, or interrupted as intended",
  failed: "any other failure",
  usage: "a flag, variable, file or request is invalid; nothing was done",
  notFound: "the object or resource does not exist",
  conflict: "the object has another mod_revision than expected; not written",
  unavailable: "no response in time, or refused for now: repeat later",
  denied: "the caller is not known, or has no right to this",
  unknown: "no response to a write, which may have been done: read first",
};

const byReason: Partial<Record<Reason, number>> = {
  INVALID_REQUEST: exitCodes.usage,
  UNKNOWN_RESOURCE: exitCodes.notFound,
  OBJECT_NOT_FOUND: exitCodes.notFound,
  UNKNOWN_WATCH: exitCodes.notFound,
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
  OUTCOME_UNKNOWN: exitCodes.unknown,
};

/** The exit code of a client command that failed with `error`. */
export function exitCodeOf(error: unknown): number {
  return error instanceof WatchFanoutError
    ? (byReason[error.reason] ?? exitCodes.failed)
    : exitCodes.failed;
}
