import type { Meter } from "@opentelemetry/api";

/** What metrics show of the workers of a service. */
interface WorkersSource {
  /** By worker. */
  stats(): readonly {
    readonly worker: number;
    readonly isReady: boolean;
    readonly isCollected: boolean;
    readonly restarts: number;
  }[];
  /** Number of accepted connections that wait for a worker, and of those that were closed since too many waited. */
  readonly connections: { readonly waiting: number; readonly refused: number };
}

/** Registers how the workers of a service are. */
export function registerWorkerMetrics(meter: Meter, source: WorkersSource): void {
  const ready = meter.createObservableGauge("watch_fanout_worker_ready", {
    unit: "1",
    description: "1 if a worker is ready, 0 while it starts or is replaced.",
  });
  const collected = meter.createObservableGauge("watch_fanout_worker_metrics_collected", {
    unit: "1",
    description:
      "1 if this response has the metrics of a worker, 0 if it did not respond within 2 s or is being replaced.",
  });
  const restarts = meter.createObservableCounter("watch_fanout_worker_restarts", {
    unit: "{restart}",
    description:
      "Number of times that a worker was replaced because it had died or did not respond.",
  });
  const waiting = meter.createObservableGauge("watch_fanout_waiting_connections", {
    unit: "{connection}",
    description: "Accepted connections that wait for a worker.",
  });
  const refused = meter.createObservableCounter("watch_fanout_refused_connections", {
    unit: "{connection}",
    description: "Connections that were closed because too many waited for a worker.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      for (const { worker, isReady, isCollected, restarts: count } of source.stats()) {
        const label = { worker: String(worker) };
        result.observe(ready, Number(isReady), label);
        result.observe(collected, Number(isCollected), label);
        result.observe(restarts, count, label);
      }
      result.observe(waiting, source.connections.waiting);
      result.observe(refused, source.connections.refused);
    },
    [ready, collected, restarts, waiting, refused],
  );
}
