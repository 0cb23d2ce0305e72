import type { ServerHttp2Session } from "node:http2";
import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";
import type { OpenStreams } from "../kernel/open-streams.ts";

/** Interval at which streams are ended whose calls had begun and not been opened before, in milliseconds. */
const againMs = 1_000;

/**
 * Ends connections gracefully, in time slices: each with a GOAWAY, and its streams with DRAINING and their resume points.
 * The other calls on it finish, and then it is closed.
 */
export function drainConnections(
  sessions: readonly ServerHttp2Session[],
  streams: OpenStreams,
  clock: Clock,
): void {
  const open = sessions.filter(({ destroyed }) => !destroyed);
  if (open.length === 0) return;
  runInTimeSlices(clock, draining(open, streams));
  clock.setTimeout(() => drainConnections(open, streams, clock), againMs);
}

function* draining(
  sessions: readonly ServerHttp2Session[],
  streams: OpenStreams,
): Generator<void, void, void> {
  const error = new WatchFanoutError(
    "DRAINING",
    "The connection is closed so that load spreads evenly. Resume from the last resume point, over a new connection.",
  );
  for (const session of sessions) {
    // Before its streams end: a client that opens them again at once uses another connection.
    if (!(session.closed || session.destroyed)) session.close();
    for (const stream of [...streams.of(session)]) {
      // It may have ended since the step before.
      streams.end(stream, error);
      yield;
    }
    yield;
  }
}
