import type { Meter } from "@opentelemetry/api";
import type { EtcdApiStats } from "../etcd-api/etcd-api.ts";

/** Registers what the relay of etcd's own API holds. */
export function registerEtcdApiMetrics(meter: Meter, api: { stats(): EtcdApiStats }): void {
  const calls = meter.createObservableGauge("watch_fanout_etcd_api_calls", {
    unit: "{call}",
    description: "Open calls of etcd's own API.",
  });
  const connections = meter.createObservableGauge("watch_fanout_etcd_api_connections", {
    unit: "{connection}",
    description: "Open connections to etcd for calls of its own API.",
  });
  const revision = meter.createObservableGauge("watch_fanout_etcd_api_revision", {
    unit: "1",
    description: "Highest revision in a response of etcd's own API.",
  });
  const watches = meter.createObservableGauge("watch_fanout_etcd_api_watches", {
    unit: "{watch}",
    description:
      "Open watches of etcd's own API, by what serves them: the cache or etcd. Streams that are relayed as a whole are " +
      "not counted.",
  });
  const ranges = meter.createObservableCounter("watch_fanout_etcd_api_ranges", {
    unit: "{call}",
    description:
      "Calls of etcd's Range and RangeStream, by what answered them: the cache or etcd. Calls that are relayed unread " +
      "are not counted.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      const stats = api.stats();
      result.observe(calls, stats.calls);
      result.observe(connections, stats.connections);
      result.observe(revision, stats.revision);
      const { watches: all, relayed } = stats.watches;
      result.observe(watches, all - relayed, { served_by: "cache" });
      result.observe(watches, relayed, { served_by: "etcd" });
      result.observe(ranges, stats.ranges.cached, { served_by: "cache" });
      result.observe(ranges, stats.ranges.relayed, { served_by: "etcd" });
    },
    [calls, connections, revision, watches, ranges],
  );
}

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
    description: "1 if this response has the metrics of a worker, 0 otherwise.",
  });
  const restarts = meter.createObservableCounter("watch_fanout_worker_restarts", {
    unit: "{restart}",
    description: "Times that a worker was replaced because it had died or did not respond.",
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
