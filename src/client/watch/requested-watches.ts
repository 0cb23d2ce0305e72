import type { Clock } from "../../base/clock.ts";
import { invalidRequest } from "../../base/errors.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import type { WatchRequest as WireWatchRequest } from "../../wire/generated/watchfanout/v1/WatchRequest.ts";
import { wireDuration, wireRange, wireSelection, wireView } from "../calls/encode.ts";
import type { Endpoint } from "../calls/endpoints.ts";
import type { WatchOptions } from "../calls/options.ts";
import type { AtomicBatch } from "./client-calls.ts";
import { type OpenStream, resumingWatch, type WatchStreams } from "./resuming-watch.ts";

const defaultMaxBatchBytes = 1024 ** 3;

interface WatchDeps {
  readonly clock: Clock;
  readonly random: () => number;
  readonly reachability: Reachability;
}

/**
 * A watch as its options ask for it, over streams of its own or shared ones: see Client.watch. Throws INVALID_REQUEST for a
 * scope and a range together.
 */
export function requestedWatch(
  deps: WatchDeps,
  streams: WatchStreams,
  resource: string,
  options: WatchOptions,
): AsyncGenerator<AtomicBatch, void, void> {
  const { scope, range } = options;
  if (scope !== undefined && range !== undefined) {
    throw invalidRequest(
      "range",
      "A watch has a scope or a range of keys, not both. Leave one out.",
    );
  }
  const request: WireWatchRequest = {
    resource,
    ...(range === undefined ? scope : { range: wireRange(range) }),
    ...(options.afterRevision === undefined ? {} : { after_revision: options.afterRevision }),
    send_initial_events: options.sendInitialEvents ?? false,
    delivery: `DELIVERY_${options.delivery ?? "UNSPECIFIED"}`,
    include_previous: options.includePrevious ?? false,
    ...wireView(options),
    event_types: (options.eventTypes ?? []).map((type) => `EVENT_TYPE_${type}` as const),
    eager_bookmarks: options.eagerBookmarks ?? false,
    bookmark_interval: wireDuration(options.bookmarkIntervalMs),
    history_id: options.historyId ?? "",
    ...wireSelection(options),
  };
  let server: Endpoint | undefined;
  const open: OpenStream = (wire, signal) =>
    streams.open(wire, signal, (endpoint) => {
      server = endpoint;
    });
  return resumingWatch(open, request, {
    ...deps,
    signal: options.signal,
    closing: streams.closing,
    resume: options.resume,
    maxBatchBytes: options.maxBatchBytes ?? defaultMaxBatchBytes,
    onOpened: () => {
      if (server !== undefined) options.onOpened?.(server);
    },
    onViolation: () => server?.failed(server.incidents, 0),
    onInterruption: options.onInterruption,
  });
}
