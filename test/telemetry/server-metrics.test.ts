import { expect, onTestFinished, test } from "vitest";
import { PrometheusMetrics } from "../../src/telemetry/prometheus.ts";
import { registerServerMetrics } from "../../src/telemetry/server-metrics.ts";
import { SetGauge } from "../server/pressure/set-gauge.ts";
import { serveThings } from "../server/served.ts";

test("The metrics of a server have its memory pressure, what it sheds, and what clients were stopped from", async () => {
  const gauge = new SetGauge("cgroup");
  const { server, client, clock } = await serveThings({ server: { memoryGauges: [gauge] } });
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  registerServerMetrics(metrics.meter, server);
  gauge.used = 960;
  clock.advance(250);
  await expect(client.list({ resource: "things" })).rejects.toMatchObject({ reason: "OVERLOADED" });
  const lines = new Set((await metrics.render()).split("\n"));
  for (const line of [
    'watch_fanout_memory_pressure_level{level="normal"} 0',
    'watch_fanout_memory_pressure_level{level="high"} 1',
    'watch_fanout_memory_used_bytes{limit="cgroup"} 960',
    'watch_fanout_memory_ceiling_bytes{limit="cgroup"} 1000',
    'watch_fanout_shed_calls_total{kind="list"} 1',
    'watch_fanout_shed_calls_total{kind="stream"} 0',
    'watch_fanout_http2_attacks_total{kind="rapid_reset"} 0',
    'watch_fanout_http2_attacks_total{kind="half_open"} 0',
  ]) {
    expect(lines).toContain(line);
  }
});
