import type { Meter } from "@opentelemetry/api";
import type { ServerStats } from "../server/server.ts";

/**
 * Registers what callers use and what was refused to them. No label is a caller's name: callers choose these, and there may
 * be any number.
 */
export function registerCallerMetrics(meter: Meter, server: { stats(): ServerStats }): void {
  const known = meter.createObservableGauge("watch_fanout_callers", {
    unit: "{caller}",
    description:
      "Identities, and hosts of anonymous callers, that are known: those with connections, and recent ones.",
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
      "requests, requests that wait (queued_requests), the time that they wait (queue_time), new watches per second " +
      "(watch_rate), bytes sent per second (send_rate), and calls cancelled on connections of proxies (cancel_rate).",
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
