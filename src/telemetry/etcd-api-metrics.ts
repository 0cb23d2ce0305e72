import type { Meter } from "@opentelemetry/api";
import type { EtcdApiStats } from "../etcd-api/etcd-api.ts";

/** Registers what the relay of etcd's own API holds. */
export function registerEtcdApiMetrics(meter: Meter, api: { stats(): EtcdApiStats }): void {
  const calls = meter.createObservableGauge("watch_fanout_etcd_api_calls", {
    unit: "{call}",
    description:
      "Open calls of etcd's own API (--etcd-api), each with a stream of its own to etcd unless caches serve it.",
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
      "Open watches of etcd's own API, by what serves them: the cache, or a watch of etcd (relayed). Streams that are " +
      "relayed as a whole, such as those with a token, are not counted.",
  });
  const ranges = meter.createObservableCounter("watch_fanout_etcd_api_ranges", {
    unit: "{call}",
    description:
      "Calls of etcd's Range and RangeStream that were read here, by what answered them: the cache, or etcd (relayed). " +
      "Calls that are relayed unread, such as those with a token, are not counted.",
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
