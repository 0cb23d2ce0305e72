import { type Attributes, type Counter, type Histogram, metrics } from "@opentelemetry/api";
import { gauge, registerMetrics } from "../../base/metric-table.ts";

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
  readonly #attributes: Attributes;
  readonly #adds: Counter;
  readonly #retries: Counter;
  readonly #queueDuration: Histogram;
  readonly #workDuration: Histogram;
  /** Ends the meter provider's reference to the queue. */
  readonly close: () => void;

  constructor(name: string, queue: QueueState) {
    const meter = metrics.getMeter("watch-fanout");
    const prefix = "watch_fanout_client_work_queue";
    this.#attributes = { queue: name };
    this.#adds = meter.createCounter(`${prefix}_adds`, {
      description: "Keys that were added and not already queued.",
      unit: "{key}",
    });
    this.#retries = meter.createCounter(`${prefix}_retries`, {
      description: "Keys that were added after a failure.",
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
    const read = () => ({ depth: queue.length, runningMs: [...queue.runningMs()] });
    this.close = registerMetrics(meter, () => [[read(), this.#attributes]], {
      [`${prefix}_depth`]: gauge("{key}", "Keys that can be handed out.", ({ depth }) => depth),
      [`${prefix}_longest_running_seconds`]: gauge(
        "s",
        "Age of the longest-running work item; 0 if no worker is busy.",
        ({ runningMs: [longest = 0] }) => longest / 1_000,
      ),
      [`${prefix}_unfinished_work_seconds`]: gauge(
        "s",
        "Sum of the ages of all work items in progress.",
        ({ runningMs }) => runningMs.reduce((sum, ms) => sum + ms, 0) / 1_000,
      ),
    });
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
}
