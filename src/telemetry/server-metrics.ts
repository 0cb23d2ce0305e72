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
      "Memory held for clients. requests: not complete or not handled yet; retained: parts of requests that open streams keep; unsent: responses that clients have not accepted.",
      (stats) => byEach("pool", pools, (pool) => [pool, stats[pool].bytes]),
    ),
    watch_fanout_pool_evictions: counter("{call}", "Calls ended to make room in a pool.", (stats) =>
      byEach("pool", pools, (pool) => [pool, stats[pool].evictions]),
    ),
    watch_fanout_compressions: counter(
      "{part}",
      "Parts of responses to compress, once for all that share them, with --compression. compressed; incompressible; pressure, late: sent as they are, since too much was being compressed, or it took over 100 ms.",
      ({ compression }) => by("result", compression?.results ?? {}),
    ),
    watch_fanout_compression_sent_bytes: counter(
      "By",
      "Size of the compressed parts of responses. sent: as they were sent; plain: before compression.",
      ({ compression }) =>
        by("size", {
          sent: compression?.sentBytes ?? 0,
          plain: compression?.sentPlainBytes ?? 0,
        }),
    ),
    watch_fanout_compression_cache_bytes: gauge(
      "By",
      "Memory of compressed parts that are held for later responses.",
      ({ compression }) => compression?.cachedBytes ?? 0,
    ),
    watch_fanout_memory_pressure_level: gauge(
      "1",
      "1 for the current level of memory pressure, 0 for the others. normal; elevated: new streams are refused; high: Lists as well; critical: streams that are not accepted are ended; exhausted: all calls but those of health are refused.",
      ({ pressure }) =>
        byEach("level", pressureLevels, (level) => [level, Number(pressure.level === level)]),
    ),
    watch_fanout_memory_used_bytes: gauge(
      "By",
      "Memory in use that has a limit. heap: its old generation after the last collection; cgroup: the working set of the control group; process: the heap with the memory outside of it.",
      ({ pressure }) =>
        byEach("limit", pressure.readings, ({ limit, usedBytes }) => [limit, usedBytes]),
    ),
    watch_fanout_memory_ceiling_bytes: gauge(
      "By",
      "Ceilings of that memory: 75 % of the limit of the heap, 90 % of that of the control group, or --memory-ceiling.",
      ({ pressure }) =>
        byEach("limit", pressure.readings, ({ limit, ceilingBytes }) => [limit, ceilingBytes]),
    ),
    watch_fanout_shed_calls: counter(
      "{call}",
      "Calls refused because memory was short (stream, list, call), and streams and responses ended because their clients did not accept them (slow_stream).",
      ({ pressure }) => byEach("kind", shedKinds, (kind) => [kind, pressure.shed[kind]]),
    ),
    watch_fanout_http2_attacks: counter(
      "{event}",
      "Times that a client was stopped at the level of HTTP/2. half_open: does not acknowledge a ping; " +
        "too_many_connections: replaced or refused at --max-connections; protocol_error: also how clients of grpc-go " +
        "close, not an attack.",
      ({ attacks }) => byEach("kind", attacks, (entry) => entry),
    ),
    watch_fanout_handshake_failures: counter(
      "{connection}",
      "Connections whose handshake has failed. refused_certificate: the client does not accept the server's; " +
        "protocol: no common TLS version, cipher or application protocol; not_http2: also probes that send a byte; " +
        "closed: before the handshake's end, also TCP probes.",
      ({ handshakeFailures }) => byEach("cause", handshakeFailures, (entry) => entry),
    ),
    watch_fanout_slow_calls: counter(
      "{call}",
      "Calls ended because their client accepted too little of what it was sent.",
      ({ slowCalls }) => slowCalls,
    ),
    watch_fanout_full_store_writes: counter(
      "{call}",
      "Writes that the store has refused because it is full.",
      ({ fullStoreWrites }) => fullStoreWrites,
    ),
    // What callers use and what was refused to them. No label is a caller's name: callers choose these, and there may be
    // any number.
    watch_fanout_callers: gauge(
      "{caller}",
      "Identities, and hosts of anonymous callers, with connections or seen recently.",
      ({ callers }) => callers.callers,
    ),
    watch_fanout_caller_usage_max: gauge(
      "1",
      "The most that one caller has, of connections, open streams, and requests in progress.",
      ({ callers }) => by("limit", callers.most),
    ),
    watch_fanout_caller_refusals: counter(
      "{call}",
      "Calls refused because their caller, or all together, had reached a limit: connections, streams, requests, queued_requests, queue_time, watch_rate, send_rate, or cancel_rate (calls cancelled on connections of proxies).",
      ({ callers }) => byEach("limit", callers.refused, (entry) => entry),
    ),
    watch_fanout_paced_streams: gauge(
      "{stream}",
      "Streams that wait because of --max-send-rate, or that of their caller.",
      ({ callers }) => callers.pacedStreams,
    ),
    watch_fanout_requests_in_flight: gauge(
      "{request}",
      "Requests that are handled: reads and writes. --max-KIND-in-flight bounds them.",
      ({ inFlight }) =>
        byEach("kind", Object.entries(inFlight), ([kind, { size }]) => [kind, size]),
    ),
    watch_fanout_requests_queued: gauge(
      "{request}",
      "Requests that wait to be handled: reads and writes.",
      ({ inFlight }) =>
        byEach("kind", Object.entries(inFlight), ([kind, { queued }]) => [kind, queued]),
    ),
  });
}
