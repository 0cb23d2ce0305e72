import { notReady, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { ReplaceCause } from "../../reflector/reflector.ts";

export function slowConsumer(why: string): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `${why} Resume from the last resume point if history still has it, otherwise list anew; and read ` +
      "faster, or watch less.",
  );
}

export function draining(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "This replica is shutting down. Resume from the last resume point, on another replica.",
  );
}

/** A stream has reached its maximum age. */
export function expired(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "The stream has reached its maximum age, so that load spreads over the replicas. Resume from the " +
      "last resume point.",
  );
}

export function cacheNotReady(name: string): WatchFanoutError {
  return notReady(`The cache of ${JSON.stringify(name)} has not been filled yet. Try again soon.`);
}

/** Nothing may be told for now of a store that has another history than what the cache holds. */
export function historyChangePending(cause?: unknown): WatchFanoutError {
  return upstreamUnavailable(
    "The store's history has become another one, which this replica has yet to take in. Try again soon.",
    cause,
  );
}

/** Ends the streams of a cache whose state was replaced: what lies between is not known. */
export function lost(cause: ReplaceCause, revision: number, historyId: string): WatchFanoutError {
  if (cause === "history changed") {
    return new WatchFanoutError(
      "HISTORY_CHANGED",
      "The store's history has become another one. List anew and go on from there.",
      { metadata: { history_id: historyId } },
    );
  }
  return new WatchFanoutError(
    "HISTORY_LOST",
    `The store no longer had the events that came next; it is at revision ${revision} now. ` +
      "List anew and go on from there.",
    { metadata: { current_revision: String(revision) } },
  );
}

/** Ends the streams of a cache that was found to differ from the store. */
export function cacheInconsistent(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    "The cache was found to differ from the store, so this stream may have missed something. " +
      "List anew and go on from there.",
    { metadata: { current_revision: String(revision) } },
  );
}
