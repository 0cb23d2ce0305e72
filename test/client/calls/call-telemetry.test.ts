import {
  INVALID_SPAN_CONTEXT,
  type Span,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { describe, expect, onTestFinished, test } from "vitest";
import { notReady, revisionTooOld } from "../../../src/base/errors.ts";
import { statusOf } from "../../../src/wire/errors.ts";
import { HastyClock } from "../hasty-clock.ts";
import { client, server } from "../opened.ts";
import { endWith } from "../scripted-server.ts";
import { wireObject, wireResponse } from "../wire-messages.ts";
import { setUpMetrics } from "../work-queue/metered.ts";

const found = { revision: "9", object: wireObject("k", 5), history_id: "h" };

/** Sets up tracing for one test, as a user would. Returns the spans as lines, and the addresses of servers apart. */
function setUpTracing(): { readonly recorded: string[]; readonly addressed: Set<string> } {
  const recorded: string[] = [];
  const addressed = new Set<string>();
  const say = (text: string) => {
    recorded.push(text);
    return span as Span;
  };
  const span: Partial<Span> = {
    setAttributes: (attributes) => {
      for (const [name, value] of Object.entries(attributes)) {
        if (name.startsWith("server.")) addressed.add(`${name} ${value}`);
        else say(`${name} ${value}`);
      }
      return span as Span;
    },
    addEvent: (name, attributes) => say(`${name} ${JSON.stringify(attributes)}`),
    setStatus: ({ code }) => say(SpanStatusCode[code]),
    end: () => void say("end"),
    isRecording: () => true,
    spanContext: () => INVALID_SPAN_CONTEXT,
  };
  const tracer: Partial<Tracer> = { startSpan: (name) => say(name) };
  trace.setGlobalTracerProvider({ getTracer: () => tracer as Tracer });
  onTestFinished(() => trace.disable());
  return { recorded, addressed };
}

describe("Where OpenTelemetry is set up", () => {
  test("a call is a span with its retries, and its duration is measured.", async () => {
    const readMetrics = setUpMetrics();
    const { recorded, addressed } = setUpTracing();
    let asked = 0;
    const address = await server({
      get: (_, callback) =>
        asked++ === 0 ? callback(statusOf(notReady("Not yet."), () => 0.5)) : callback(null, found),
    });
    await client(address, { clock: new HastyClock() }).get("r", "k");
    expect(recorded).toEqual([
      "watchfanout.v1.ListWatchService/Get",
      'retry {"reason":"NOT_READY"}',
      "rpc.status_code OK",
      "end",
    ]);
    const [host, port] = address.split(":");
    expect(addressed).toEqual(new Set([`server.address ${host}`, `server.port ${port}`]));
    expect(await readMetrics()).toEqual({
      watch_fanout_client_retries: [["Get", "NOT_READY", 1]],
      watch_fanout_client_call_duration_seconds: [["Get", "OK", { count: 1, sum: 1 }]],
    });
  });

  test("a call that fails is a span and a duration with the reason.", async () => {
    const readMetrics = setUpMetrics();
    const { recorded } = setUpTracing();
    const address = await server({
      put: (_, callback) => callback(statusOf(notReady("Not yet."))),
    });
    const db = client(address, { clock: new HastyClock(), maxAttempts: 1 });
    await expect(db.put("r", "k", Buffer.of())).rejects.toThrow();
    expect(recorded).toEqual([
      ...["watchfanout.v1.WriteService/Put", "rpc.status_code UNAVAILABLE"],
      ...["error.type NOT_READY", "ERROR", "end"],
    ]);
    expect(await readMetrics()).toEqual({
      watch_fanout_client_call_duration_seconds: [["Put", "NOT_READY", { count: 1, sum: 0 }]],
    });
  });

  test("streams are counted while they are open, and when the server or the network ends them.", async () => {
    const readMetrics = setUpMetrics();
    const address = await server({
      watch: (call) => {
        call.write(wireResponse(5));
        if (call.request.after_revision === "5") endWith(call, revisionTooOld(5, 6));
      },
    });
    const db = client(address);
    const units = db.watch("r");
    await units.next();
    expect(await readMetrics()).toEqual({ watch_fanout_client_open_watches: [[address, 1]] });
    await units.return();
    const ending = db.watch("r", { afterRevision: 5 });
    await ending.next();
    await expect(ending.next()).rejects.toMatchObject({ reason: "REVISION_TOO_OLD" });
    expect(await readMetrics()).toMatchObject({
      watch_fanout_client_watch_interruptions: [["REVISION_TOO_OLD", 1]],
    });
  });
});
