import { type Reason, WatchFanoutError } from "../../base/errors.ts";

/** What came in between is lost, or what was told before is of another history. */
const gone: readonly Reason[] = ["REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST"];

/**
 * Whether a watch that failed like this can't go on where it ended, and one that begins anew, with the current state,
 * can: `sendInitialEvents` without a revision and a history, or a new listing. Everything else that a watch throws
 * would end a new one too.
 */
export function requiresRelist(error: unknown): error is WatchFanoutError {
  return error instanceof WatchFanoutError && gone.includes(error.reason);
}
