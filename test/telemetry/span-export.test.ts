import { trace } from "@opentelemetry/api";
import { ExportResultCode } from "@opentelemetry/core";
import { type SpanExporter, TracerProvider } from "@opentelemetry/sdk-trace";
import { describe, expect, test } from "vitest";
import { SpanExport } from "../../src/telemetry/otlp.ts";

describe("Ended spans", () => {
  test("are dropped above the bound of the queue, and counted", async () => {
    const held: (() => void)[] = [];
    // It answers when the test lets it.
    const exporter: SpanExporter = {
      export: (_, done) => void held.push(() => done({ code: ExportResultCode.SUCCESS })),
      shutdown: async () => {},
    };
    const spans = new SpanExport(exporter, () => {});
    const tracer = new TracerProvider({ spanProcessors: [spans] }).getTracer("test");
    // 512 are in the request that is not answered, 2,048 wait.
    for (let index = 0; index < 512 + 2_048 + 7; index++) tracer.startSpan("a").end();
    expect(spans.counts).toEqual({ exported: 0, overflown: 7, failed: 0 });
    const flushed = spans.shutdown();
    while (spans.counts.exported < 512 + 2_048) {
      for (const answer of held.splice(0)) answer();
      await Promise.resolve();
    }
    await flushed;
    expect(spans.counts).toEqual({ exported: 512 + 2_048, overflown: 7, failed: 0 });
    expect(trace.getActiveSpan()).toBeUndefined();
  });
});
