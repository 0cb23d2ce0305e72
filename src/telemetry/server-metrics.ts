import type { Meter } from "@opentelemetry/api";
import type { PoolStats, ServerStats } from "../server/server.ts";

const pools = ["requests", "retained", "unsent"] as const;

/** Registers what a server holds for its clients. */
export function registerServerMetrics(meter: Meter, server: { stats(): ServerStats }): void {
  const connections = meter.createObservableGauge("watch_fanout_connections", {
    unit: "{connection}",
    description: "Open gRPC connections.",
  });
  const streams = meter.createObservableGauge("watch_fanout_open_streams", {
    unit: "{stream}",
    description: "Open watches, health watches and reflection streams. --max-streams bounds them.",
  });
  const bytes = meter.createObservableGauge("watch_fanout_pool_bytes", {
    unit: "By",
    description:
      "Memory held for clients, by pool: requests that are incomplete or not handled yet (requests), parts of " +
      "requests that open streams retain (retained), and responses that clients have not accepted (unsent).",
  });
  const evictions = meter.createObservableCounter("watch_fanout_pool_evictions", {
    unit: "{call}",
    description: "Calls ended to make room in a pool, by pool.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      const stats = server.stats();
      result.observe(connections, stats.connections);
      result.observe(streams, stats.streams);
      for (const pool of pools) {
        const held: PoolStats = stats[pool];
        result.observe(bytes, held.bytes, { pool });
        result.observe(evictions, held.evictions, { pool });
      }
    },
    [connections, streams, bytes, evictions],
  );
}
