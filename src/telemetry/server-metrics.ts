import type { Meter } from "@opentelemetry/api";
import { by, byEach, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import { pressureLevels, shedKinds } from "../server/pressure/memory-pressure.ts";
import type { ServerStats } from "../server/server.ts";

const pools = ["requests", "retained", "unsent"] as const;

/** Registers what a server holds for its clients. */
export function registerServerMetrics(meter: Meter, server: { stats(): ServerStats }): void {
  registerMetrics(meter, () => [[server.stats()]], {
    watch_fanout_connections: gauge(
      "{connection}",
      "Open gRPC connections.",
      ({ connections }) => connections,
    ),
    watch_fanout_open_streams: gauge(
      "{stream}",
      "Open streams, which --max-streams bounds.",
      ({ streams }) => streams,
    ),
    watch_fanout_pool_bytes: gauge(
      "By",
      "Memory held for clients. requests: not handled yet; retained: parts of requests of open streams; unsent: responses that clients have not accepted.",
      (stats) => byEach("pool", pools, (pool) => [pool, stats[pool].bytes]),
    ),
    watch_fanout_pool_evictions: counter("{call}", "Calls ended to make room in a pool.", (stats) =>
      byEach("pool", pools, (pool) => [pool, stats[pool].evictions]),
    ),
    watch_fanout_compressions: counter(
      "{part}",
      "Parts of responses to compress, once for all that share them. pressure, late: sent as they are, since too much was being compressed, or it took over 100 ms.",
      ({ compression }) => by("result", compression?.results ?? {}),
    ),
    watch_fanout_compression_sent_bytes: counter(
      "By",
      "Size of compressed parts. sent: as they were sent; plain: before compression.",
      ({ compression }) =>
        by("size", {
          sent: compression?.sentBytes ?? 0,
          plain: compression?.sentPlainBytes ?? 0,
        }),
    ),
    watch_fanout_compression_cache_bytes: gauge(
      "By",
      "Memory of compressed parts held for later responses.",
      ({ compression }) => compression?.cachedBytes ?? 0,
    ),
    watch_fanout_memory_pressure_level: gauge(
      "1",
      "1 for the current level of memory pressure, from normal to exhausted: docs/limits.md has what each sheds.",
      ({ pressure }) =>
        byEach("level", pressureLevels, (level) => [level, Number(pressure.level === level)]),
    ),
    watch_fanout_memory_used_bytes: gauge(
      "By",
      "Memory in use that has a limit: heap, after the last collection; cgroup, the working set; process, heap and outside.",
      ({ pressure }) =>
        byEach("limit", pressure.readings, ({ limit, usedBytes }) => [limit, usedBytes]),
    ),
    watch_fanout_memory_ceiling_bytes: gauge(
      "By",
      "Memory above which load is shed, by limit.",
      ({ pressure }) =>
        byEach("limit", pressure.readings, ({ limit, ceilingBytes }) => [limit, ceilingBytes]),
    ),
    watch_fanout_shed_calls: counter(
      "{call}",
      "Calls refused because memory was short, and slow streams ended.",
      ({ pressure }) => byEach("kind", shedKinds, (kind) => [kind, pressure.shed[kind]]),
    ),
    watch_fanout_http2_attacks: counter(
      "{event}",
      "Times that a client was stopped at the level of HTTP/2. half_open: does not answer a ping; protocol_error: also how clients of grpc-go close.",
      ({ attacks }) => byEach("kind", attacks, (entry) => entry),
    ),
    watch_fanout_handshake_failures: counter(
      "{connection}",
      "Connections whose handshake has failed. The runbook has what each cause asks for; not_http2 and closed: also probes.",
      ({ handshakeFailures }) => byEach("cause", handshakeFailures, (entry) => entry),
    ),
    watch_fanout_slow_calls: counter(
      "{call}",
      "Calls ended because their client accepted too little.",
      ({ slowCalls }) => slowCalls,
    ),
    watch_fanout_full_store_writes: counter(
      "{call}",
      "Writes that a full store has refused.",
      ({ fullStoreWrites }) => fullStoreWrites,
    ),
    // What callers use and what was refused to them. No label is a caller's name: callers choose these, and there may be
    // any number.
    watch_fanout_callers: gauge(
      "{caller}",
      "Callers with connections or seen recently.",
      ({ callers }) => callers.callers,
    ),
    watch_fanout_caller_usage_max: gauge("1", "The most that one caller has.", ({ callers }) =>
      by("limit", callers.most),
    ),
    watch_fanout_caller_refusals: counter(
      "{call}",
      "Calls refused because their caller, or all together, had reached a limit. cancel_rate: of calls cancelled on connections of proxies.",
      ({ callers }) => byEach("limit", callers.refused, (entry) => entry),
    ),
    watch_fanout_granted_leases: gauge(
      "{lease}",
      "Leases granted that have not ended, as far as this process knows, which --max-leases bounds.",
      ({ grantedLeases }) => grantedLeases,
    ),
    watch_fanout_paced_streams: gauge(
      "{stream}",
      "Streams that wait for a send rate.",
      ({ callers }) => callers.pacedStreams,
    ),
    watch_fanout_requests_in_flight: gauge(
      "{request}",
      "Requests that are handled.",
      ({ inFlight }) =>
        byEach("kind", Object.entries(inFlight), ([kind, { size }]) => [kind, size]),
    ),
    watch_fanout_requests_queued: gauge(
      "{request}",
      "Requests that wait to be handled.",
      ({ inFlight }) =>
        byEach("kind", Object.entries(inFlight), ([kind, { queued }]) => [kind, queued]),
    ),
  });
}
