import type { Meter } from "@opentelemetry/api";
import { by, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import type { EtcdApiStats } from "../etcd-api/etcd-api.ts";

/** Registers what the relay of etcd's own API holds. */
export function registerEtcdApiMetrics(meter: Meter, api: { stats(): EtcdApiStats }): void {
  registerMetrics(meter, () => [[api.stats()]], {
    watch_fanout_etcd_api_calls: gauge(
      "{call}",
      "Open calls of etcd's own API.",
      ({ calls }) => calls,
    ),
    watch_fanout_etcd_api_connections: gauge(
      "{connection}",
      "Open connections to etcd for calls of its own API.",
      ({ connections }) => connections,
    ),
    watch_fanout_etcd_api_revision: gauge(
      "1",
      "Highest revision in a response of etcd's own API.",
      ({ revision }) => revision,
    ),
    watch_fanout_etcd_api_watches: gauge(
      "{watch}",
      "Open watches of etcd's own API, except on streams relayed as a whole.",
      ({ watches: { watches, relayed } }) =>
        by("served_by", { cache: watches - relayed, etcd: relayed }),
    ),
    watch_fanout_etcd_api_ranges: counter(
      "{call}",
      "Calls of etcd's Range and RangeStream, except those relayed unread.",
      ({ ranges: { cached, relayed } }) => by("served_by", { cache: cached, etcd: relayed }),
    ),
  });
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
  const workers = () =>
    source.stats().map((each) => [each, { worker: String(each.worker) }] as const);
  registerMetrics(meter, workers, {
    watch_fanout_worker_ready: gauge(
      "1",
      "1 if a worker is ready, 0 while it starts or is replaced.",
      ({ isReady }) => Number(isReady),
    ),
    watch_fanout_worker_metrics_collected: gauge(
      "1",
      "1 if this response has the metrics of a worker.",
      ({ isCollected }) => Number(isCollected),
    ),
    watch_fanout_worker_restarts: counter(
      "{restart}",
      "Times that a worker was replaced.",
      ({ restarts }) => restarts,
    ),
  });
  registerMetrics(meter, () => [[source.connections]], {
    watch_fanout_waiting_connections: gauge(
      "{connection}",
      "Connections that wait for a worker.",
      ({ waiting }) => waiting,
    ),
    watch_fanout_refused_connections: counter(
      "{connection}",
      "Connections closed because too many waited.",
      ({ refused }) => refused,
    ),
  });
}
