import { constants, monitorEventLoopDelay, PerformanceObserver } from "node:perf_hooks";
import type { Meter } from "@opentelemetry/api";
import type { Clock, Timer } from "../base/clock.ts";
import { gauge, registerMetrics } from "../base/metric-table.ts";

/** Interval of the timer that the delay is measured by, in milliseconds. */
const resolutionMs = 20;
/** Length of a window, in milliseconds, and how many are reported: a minute. Collectors that come less often miss some. */
const windowMs = 10_000;
const windows = 6;

/** In seconds. */
interface EventLoopDelays {
  readonly p99: number;
  readonly max: number;
}

/** Measures how late the event loop runs a timer. The timer is native, and wakes the process 50 times per second. */
export interface EventLoopMonitor {
  /** The worst delays of the last minute. */
  worst(): EventLoopDelays;
  stop(): void;
}

/** Registers how late the event loop runs a timer. */
export function registerEventLoopMetrics(meter: Meter, clock: Clock): EventLoopMonitor {
  const recent = new RecentDelays(clock);
  registerMetrics(meter, () => [[recent.worst()]], {
    watch_fanout_event_loop_delay_p99_seconds: gauge(
      "s",
      "99th percentile of the event-loop delay, in the worst 10 s of the last minute.",
      ({ p99 }) => p99,
    ),
    watch_fanout_event_loop_delay_max_seconds: gauge(
      "s",
      "Largest event-loop delay of the last minute.",
      ({ max }) => max,
    ),
  });
  return recent;
}

/** The delays of the last minute, for any number of collectors: reading them changes nothing. */
class RecentDelays implements EventLoopMonitor {
  readonly #clock: Clock;
  readonly #histogram = monitorEventLoopDelay({ resolution: resolutionMs });
  /** Of the windows before the current one, the oldest first. */
  readonly #past: EventLoopDelays[] = [];
  #timer: Timer;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#histogram.enable();
    this.#timer = clock.setTimeout(this.#nextWindow, windowMs);
  }

  worst(): EventLoopDelays {
    const all = [...this.#past, this.#current()];
    return {
      p99: Math.max(...all.map(({ p99 }) => p99)),
      max: Math.max(...all.map(({ max }) => max)),
    };
  }

  stop(): void {
    this.#timer.cancel();
    this.#histogram.disable();
  }

  readonly #nextWindow = (): void => {
    this.#past.push(this.#current());
    if (this.#past.length === windows) this.#past.shift();
    this.#histogram.reset();
    this.#timer = this.#clock.setTimeout(this.#nextWindow, windowMs);
  };

  #current(): EventLoopDelays {
    const { max } = this.#histogram;
    return { p99: delaySeconds(this.#histogram.percentile(99)), max: delaySeconds(max) };
  }
}

/** The histogram has the time between two runs of the timer, in nanoseconds. 0 if it has not run. */
function delaySeconds(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e9 - resolutionMs / 1_000);
}

/** In seconds: from a minor collection to a major one that holds up every client. */
const durationBoundaries = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** The kinds of collections, named as in OpenTelemetry's conventions for V8. */
export const collectionKinds = ["minor", "major", "incremental", "weakcb"] as const;

type CollectionKind = (typeof collectionKinds)[number];

/** By the number that Node.js has for each. */
const kinds: Readonly<Record<number, CollectionKind>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: "minor",
  [constants.NODE_PERFORMANCE_GC_MAJOR]: "major",
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: "incremental",
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: "weakcb",
};

/** Records a garbage collection and its duration, in milliseconds. */
type RecordCollection = (kind: CollectionKind, durationMs: number) => void;

/** Registers the durations of garbage collections. */
export function registerGcMetrics(meter: Meter): RecordCollection {
  const duration = meter.createHistogram("watch_fanout_gc_duration_seconds", {
    unit: "s",
    description: "Duration of garbage collections, which stop the event loop, by V8's kinds.",
    advice: { explicitBucketBoundaries: durationBoundaries },
  });
  return (kind, durationMs) => duration.record(durationMs / 1_000, { kind });
}

/** Records each collection of this process. Returns what stops it. */
export function observeCollections(record: RecordCollection): () => void {
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const detail: unknown = Reflect.get(entry, "detail");
      const kind = kinds[Number(Reflect.get(Object(detail), "kind"))];
      if (kind !== undefined) record(kind, entry.duration);
    }
  });
  observer.observe({ entryTypes: ["gc"] });
  return () => observer.disconnect();
}
