import { Client, credentials } from "@grpc/grpc-js";
import { expect, onTestFinished, test } from "vitest";
import { PrometheusMetrics } from "../../src/telemetry/prometheus.ts";
import { RpcMetrics } from "../../src/telemetry/rpc-metrics.ts";
import { FakeClock } from "../fake-clock.ts";
import { serveThings } from "../server/served.ts";

const asIs = (bytes: Buffer): Buffer => bytes;

/** The values of a label in all metrics. */
function valuesOf(label: string, rendered: string): Set<string> {
  const labels = rendered.matchAll(new RegExp(`\\b${label}="([^"]*)"`, "g"));
  return new Set([...labels].map(([, value = ""]) => value));
}

test("Metrics have no label value that a client chooses", async () => {
  const metrics = new PrometheusMetrics("1.2.3");
  onTestFinished(() => metrics.close());
  const { server } = await serveThings({
    server: { observer: new RpcMetrics(metrics.meter, new FakeClock()) },
  });
  const client = new Client(`127.0.0.1:${server.port}`, credentials.createInsecure());
  onTestFinished(() => client.close());
  const call = (path: string, request: Buffer): Promise<unknown> =>
    new Promise((resolve) => {
      client.makeUnaryRequest(path, asIs, asIs, request, (error) => resolve(error));
    });
  const listWatch = "/watchfanout.v1.ListWatchService";
  for (let i = 0; i < 50; i++) {
    await call(`/made.up.Service${i}/Method`, Buffer.alloc(0));
    await call(`${listWatch}/Method${i}`, Buffer.alloc(0));
    // A Get of an unknown resource, with a key that only this client sends.
    await call(`${listWatch}/Get`, Buffer.from(`\n\u0003r${10 + i}\u0012\u0003k${10 + i}`));
  }
  const rendered = await metrics.render();
  expect(valuesOf("method", rendered)).toEqual(
    new Set(["unknown", "watchfanout.v1.ListWatchService/Get"]),
  );
  expect(valuesOf("code", rendered)).toEqual(new Set(["UNIMPLEMENTED", "NOT_FOUND"]));
});
