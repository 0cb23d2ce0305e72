import { Metadata } from "@grpc/grpc-js";
import { W3CTraceContextPropagator } from "@opentelemetry/core";
import { type SpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { expect, test } from "vitest";
import type { CallProtocol } from "../../src/server/calls/service-options.ts";
import { RpcTracer, TraceAllowance } from "../../src/telemetry/call-tracer.ts";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { serveThings } from "../server/served.ts";
import { ask, json, paths } from "./http.ts";
import { nameOf, webClient, webProtocols } from "./web-clients.ts";

/*
 * Operators see calls of all protocols alike, and how many there are of each.
 */

const traceId = "0af7651916cd43dd8448eb211c80319c";
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;

async function observed() {
  const spans: object[] = [];
  const protocols: CallProtocol[] = [];
  const processor: SpanProcessor = {
    onStart: () => {},
    onEnd: (span) => {
      const { name, kind, status, attributes, events, parentSpanContext } = span;
      const parent = parentSpanContext?.traceId;
      spans.push({
        ...{ name, kind, status, attributes, parent },
        events: events.map((e) => e.name),
      });
    },
    forceFlush: async () => {},
    shutdown: async () => {},
  };
  const tracer = new RpcTracer(
    new TracerProvider({ spanProcessors: [processor] }).getTracer("test"),
    new W3CTraceContextPropagator(),
    new TraceAllowance(new ManualTimers()),
  );
  const observer = {
    started: (_: string, protocol: CallProtocol) => void protocols.push(protocol),
    ended: () => {},
    sent: () => {},
  };
  const webDoor = new ConnectDoor();
  const served = await serveThings({ server: { tracer, observer, webDoor } });
  const untilEnded = async (count: number): Promise<void> => {
    while (spans.length < count) await new Promise(setImmediate);
  };
  return { ...served, spans, protocols, untilEnded };
}

test.each(webProtocols.map((how) => [nameOf(how), how] as const))(
  "%s: a call has the span of one by gRPC",
  async (_, how) => {
    const { server, client, spans, protocols, untilEnded } = await observed();
    const headers = { traceparent };
    const none = { resource: "things", key: "none" };
    const metadata = new Metadata();
    metadata.set("traceparent", traceparent);
    await client.get(none, { metadata }).catch(() => {});
    await webClient(server.port, how)
      .get(none, { headers })
      .catch(() => {});
    await untilEnded(2);
    const [ofGrpc, ofWeb] = spans;
    expect(ofGrpc).toMatchObject({
      name: "watchfanout.v1.ListWatchService/Get",
      parent: traceId,
      attributes: { "rpc.system.name": "grpc", "rpc.status_code": "NOT_FOUND" },
    });
    expect(ofWeb).toEqual(ofGrpc);
    expect(protocols).toEqual(["grpc", how.protocol]);
  },
);

test.each(["1.1", "2"] as const)("HTTP/%s: requests are counted by protocol", async (version) => {
  const { server, protocols } = await observed();
  const { port } = server;
  const lines = { "content-type": "application/x-ndjson" };
  await ask(version, port, paths.watch, lines, '{"resource":"others"}');
  await ask(version, port, paths.get, json, '{"resource":"things","key":"a"}');
  await ask(version, port, paths.get, { "content-type": "text/plain" }, "");
  expect(protocols).toEqual(["json-lines", "connect", "other"]);
});
