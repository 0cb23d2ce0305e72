import {
  type Attributes,
  type BatchObservableCallback,
  type Counter,
  type Histogram,
  type Meter,
  metrics,
  type Observable,
} from "@opentelemetry/api";

/** The numbers of a queue that are read when metrics are collected. */
interface QueueState {
  /** Number of keys that can be handed out. */
  readonly length: number;
  /** Time since each key in progress was handed out, in milliseconds, the longest first. */
  runningMs(): Iterable<number>;
}

/** Bucket boundaries in seconds, from 1 ms to 15 minutes. */
const boundaries = [
  0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900,
];

/**
 * The metrics of one queue, at the global meter provider at the time the queue is created. Without a meter provider
 * they cost nothing. The meter provider references the queue until `close`.
 */
export class WorkQueueMetrics {
  readonly #meter: Meter;
  readonly #attributes: Attributes;
  readonly #adds: Counter;
  readonly #retries: Counter;
  readonly #queueDuration: Histogram;
  readonly #workDuration: Histogram;
  readonly #observables: Observable[];
  readonly #observe: BatchObservableCallback;

  constructor(name: string, queue: QueueState) {
    const meter = metrics.getMeter("watch-fanout");
    const prefix = "watch_fanout_client_work_queue";
    this.#meter = meter;
    this.#attributes = { queue: name };
    this.#adds = meter.createCounter(`${prefix}_adds`, {
      description: "Keys that were added, without those that were already queued.",
      unit: "{key}",
    });
    this.#retries = meter.createCounter(`${prefix}_retries`, {
      description: "Keys that were added through the rate limiter, normally after a failure.",
      unit: "{key}",
    });
    this.#queueDuration = meter.createHistogram(`${prefix}_queue_duration_seconds`, {
      description: "Time from adding a key until a worker took it.",
      unit: "s",
      advice: { explicitBucketBoundaries: boundaries },
    });
    this.#workDuration = meter.createHistogram(`${prefix}_work_duration_seconds`, {
      description: "Time from handing out a key until it was done.",
      unit: "s",
      advice: { explicitBucketBoundaries: boundaries },
    });
    const depth = meter.createObservableGauge(`${prefix}_depth`, {
      description: "Keys that can be handed out.",
      unit: "{key}",
    });
    const longest = meter.createObservableGauge(`${prefix}_longest_running_seconds`, {
      description: "Age of the longest-running work item; 0 if no worker is busy.",
      unit: "s",
    });
    const unfinished = meter.createObservableGauge(`${prefix}_unfinished_work_seconds`, {
      description: "Sum of the ages of all work items in progress.",
      unit: "s",
    });
    this.#observables = [depth, longest, unfinished];
    this.#observe = (result) => {
      const running = [...queue.runningMs()];
      const totalMs = running.reduce((sum, ms) => sum + ms, 0);
      result.observe(depth, queue.length, this.#attributes);
      result.observe(longest, (running[0] ?? 0) / 1_000, this.#attributes);
      result.observe(unfinished, totalMs / 1_000, this.#attributes);
    };
    meter.addBatchObservableCallback(this.#observe, this.#observables);
  }

  added(): void {
    this.#adds.add(1, this.#attributes);
  }

  retried(): void {
    this.#retries.add(1, this.#attributes);
  }

  taken(waitedMs: number): void {
    this.#queueDuration.record(waitedMs / 1_000, this.#attributes);
  }

  done(workedMs: number): void {
    this.#workDuration.record(workedMs / 1_000, this.#attributes);
  }

  close(): void {
    this.#meter.removeBatchObservableCallback(this.#observe, this.#observables);
  }
}
