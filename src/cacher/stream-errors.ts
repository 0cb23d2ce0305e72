import { notReady, WatchFanoutError } from "../errors.ts";
import type { ReplaceCause } from "../reflector/reflector.ts";

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

export function notReadyYet(name: string): WatchFanoutError {
  return notReady(`The cache of ${JSON.stringify(name)} has not been filled yet. Try again soon.`);
}

/** Ends the streams of a cache whose state was replaced: what lies between is not known. */
export function lost(cause: ReplaceCause, revision: number): WatchFanoutError {
  if (cause === "history changed") {
    return new WatchFanoutError(
      "HISTORY_CHANGED",
      "The store's history has become another one. List anew and go on from there.",
      { metadata: { history_id: "" } },
    );
  }
  return new WatchFanoutError(
    "HISTORY_LOST",
    `The store no longer had the events that came next; it is at revision ${revision} now. ` +
      "List anew and go on from there.",
    { metadata: { current_revision: String(revision) } },
  );
}
