import { notReady, upstreamUnavailable, WatchFanoutError } from "../../base/errors.ts";
import type { ReplaceCause } from "../../reflector/reflector.ts";

/** Ends a stream that does not keep up. `reason` is a full sentence. */
export function slowConsumer(reason: string): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `${reason} Resume from the last resume point if the event window still has it, otherwise relist; and read ` +
      "faster, or watch less.",
  );
}

/**
 * Refuses or ends a watch that reads events from before the event window. `why` is a full sentence with the limit, which
 * `option` sets, without dashes.
 */
export function resumeLimited(why: string, option: string, limit: number): WatchFanoutError {
  return new WatchFanoutError(
    "RESUME_LIMITED",
    `${why} Resume later from the last resume point, or list, and watch after the revision of the list.`,
    { metadata: { limit_name: option, limit: String(limit) } },
  );
}

/** Ends the streams of a replica that shuts down, and refuses new requests. */
export function draining(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "This replica is shutting down. Resume from the last resume point, on another replica.",
  );
}

/** Ends a stream that has reached its maximum age. */
export function expired(): WatchFanoutError {
  return new WatchFanoutError(
    "DRAINING",
    "The stream has reached its maximum age, so that load spreads over the replicas. Resume from the " +
      "last resume point.",
  );
}

/** Refuses requests until the cache has been synced once. `name`: the resource's. */
export function cacheNotReady(name: string): WatchFanoutError {
  return notReady(
    `The cache of ${JSON.stringify(name)} is not synced with the store yet. Try again soon.`,
  );
}

/** Refuses reads while the store has another history than the cache. */
export function historyChangePending(cause?: unknown): WatchFanoutError {
  return upstreamUnavailable(
    "The store's history has changed, and this replica has not listed the new one yet. Try again soon.",
    cause,
  );
}

/** Ends the streams of a cache whose state is replaced without the events that lead to the new one. */
export function lost(cause: ReplaceCause, revision: number, historyId: string): WatchFanoutError {
  if (cause === "history changed") {
    return new WatchFanoutError(
      "HISTORY_CHANGED",
      "The store's history has changed. Relist, and resume from the list's revision.",
      { metadata: { history_id: historyId } },
    );
  }
  return new WatchFanoutError(
    "HISTORY_LOST",
    `The store no longer had the next events; it is at revision ${revision} now. ` +
      "Relist, and resume from the list's revision.",
    { metadata: { current_revision: String(revision) } },
  );
}

/** Ends the streams of a cache that differs from the store. */
export function cacheInconsistent(revision: number): WatchFanoutError {
  return new WatchFanoutError(
    "HISTORY_LOST",
    "The cache differs from the store, so this stream may have missed events. " +
      "Relist, and resume from the list's revision.",
    { metadata: { current_revision: String(revision) } },
  );
}
