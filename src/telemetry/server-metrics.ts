import type { Meter } from "@opentelemetry/api";
import { pressureLevels, shedKinds } from "../server/pressure/memory-pressure.ts";
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
    description:
      "Open watches, health watches, reflection streams and calls of the etcd API. --max-streams bounds them.",
  });
  const bytes = meter.createObservableGauge("watch_fanout_pool_bytes", {
    unit: "By",
    description:
      "Memory held for clients, by pool. requests: incomplete or not handled yet; retained: parts of requests that open " +
      "streams keep; unsent: responses that clients have not accepted.",
  });
  const evictions = meter.createObservableCounter("watch_fanout_pool_evictions", {
    unit: "{call}",
    description: "Calls ended to make room in a pool, by pool.",
  });
  const level = meter.createObservableGauge("watch_fanout_memory_pressure_level", {
    unit: "1",
    description:
      "1 for the current level of memory pressure, 0 for the others. Elevated: new streams are refused; high: Lists as " +
      "well; critical: streams that are not accepted are ended; exhausted: all calls but those of health are refused.",
  });
  const used = meter.createObservableGauge("watch_fanout_memory_used_bytes", {
    unit: "By",
    description:
      "Memory in use that has a limit: the old generation of the heap after its last collection (heap), the working " +
      "set of the control group (cgroup), or the heap with the memory outside of it (process).",
  });
  const ceiling = meter.createObservableGauge("watch_fanout_memory_ceiling_bytes", {
    unit: "By",
    description:
      "Ceilings of that memory: 75 % of the limit of the heap, 90 % of that of the control group, or --memory-ceiling.",
  });
  const shed = meter.createObservableCounter("watch_fanout_shed_calls", {
    unit: "{call}",
    description:
      "Calls refused because memory was short, by kind, and streams and responses ended because their clients did not " +
      "accept them (slow_stream).",
  });
  const attacks = meter.createObservableCounter("watch_fanout_http2_attacks", {
    unit: "{event}",
    description:
      "Times that a client was stopped at the level of HTTP/2, by kind. half_open: does not acknowledge a ping; " +
      "too_many_connections: replaced or refused at --max-connections; protocol_error: also how clients of grpc-go " +
      "close, not an attack.",
  });
  const handshakes = meter.createObservableCounter("watch_fanout_handshake_failures", {
    unit: "{connection}",
    description:
      "Connections whose handshake has failed, by cause. refused_certificate: the client does not accept the server's; " +
      "protocol: no common TLS version, cipher or application protocol; not_http2: also probes that send a byte; " +
      "closed: before the handshake's end, also TCP probes.",
  });
  const slowCalls = meter.createObservableCounter("watch_fanout_slow_calls", {
    unit: "{call}",
    description: "Calls ended because their client accepted too little of what it was sent.",
  });
  const fullStoreWrites = meter.createObservableCounter("watch_fanout_full_store_writes", {
    unit: "{call}",
    description:
      "Writes that the store has refused because it is full: etcd's space quota, or the bound of the embedded store.",
  });
  registerCallerMetrics(meter, server);
  meter.addBatchObservableCallback(
    (result) => {
      const stats = server.stats();
      for (const [kind, count] of stats.attacks) result.observe(attacks, count, { kind });
      for (const [cause, count] of stats.handshakeFailures) {
        result.observe(handshakes, count, { cause });
      }
      result.observe(slowCalls, stats.slowCalls);
      result.observe(fullStoreWrites, stats.fullStoreWrites);
    },
    [attacks, handshakes, slowCalls, fullStoreWrites],
  );
  meter.addBatchObservableCallback(
    (result) => {
      const { pressure } = server.stats();
      for (const name of pressureLevels) {
        result.observe(level, Number(pressure.level === name), { level: name });
      }
      for (const { limit, usedBytes, ceilingBytes } of pressure.readings) {
        result.observe(used, usedBytes, { limit });
        result.observe(ceiling, ceilingBytes, { limit });
      }
      for (const kind of shedKinds) result.observe(shed, pressure.shed[kind], { kind });
    },
    [level, used, ceiling, shed],
  );
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

/**
 * Registers what callers use and what was refused to them. No label is a caller's name: callers choose these, and there may
 * be any number.
 */
function registerCallerMetrics(meter: Meter, server: { stats(): ServerStats }): void {
  const known = meter.createObservableGauge("watch_fanout_callers", {
    unit: "{caller}",
    description: "Identities, and hosts of anonymous callers, with connections or seen recently.",
  });
  const most = meter.createObservableGauge("watch_fanout_caller_usage_max", {
    unit: "1",
    description:
      "The most that one caller has, of connections, open streams, and requests in progress.",
  });
  const refused = meter.createObservableCounter("watch_fanout_caller_refusals", {
    unit: "{call}",
    description:
      "Calls refused because their caller, or all together, had reached a limit, by limit: connections, streams, " +
      "requests, queued_requests, queue_time, watch_rate, send_rate, or cancel_rate (calls cancelled on connections of " +
      "proxies).",
  });
  const paced = meter.createObservableGauge("watch_fanout_paced_streams", {
    unit: "{stream}",
    description:
      "Streams that wait because more was sent than --max-send-rate allows, in all or to their caller.",
  });
  const inFlight = meter.createObservableGauge("watch_fanout_requests_in_flight", {
    unit: "{request}",
    description:
      "Requests that are handled, by kind: reads and writes. --max-KIND-in-flight bounds them.",
  });
  const queued = meter.createObservableGauge("watch_fanout_requests_queued", {
    unit: "{request}",
    description: "Requests that wait to be handled, by kind: reads and writes.",
  });
  meter.addBatchObservableCallback(
    (result) => {
      const { callers, inFlight: requests } = server.stats();
      result.observe(known, callers.callers);
      for (const [limit, count] of Object.entries(callers.most)) {
        result.observe(most, count, { limit });
      }
      for (const [limit, count] of callers.refused) result.observe(refused, count, { limit });
      result.observe(paced, callers.pacedStreams);
      for (const [kind, { size, queued: waiting }] of Object.entries(requests)) {
        result.observe(inFlight, size, { kind });
        result.observe(queued, waiting, { kind });
      }
    },
    [known, most, refused, paced, inFlight, queued],
  );
}
