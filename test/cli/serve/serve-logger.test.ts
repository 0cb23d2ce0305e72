import { context, trace } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { TracerProvider } from "@opentelemetry/sdk-trace";
import { describe, expect, onTestFinished, test } from "vitest";
import { upstreamUnavailable, WatchFanoutError } from "../../../src/base/errors.ts";
import { createLogger } from "../../../src/cli/serve/logger.ts";
import type { LogFormat, LogLevel } from "../../../src/config/config.ts";

function logged(format: LogFormat, level: LogLevel = "info") {
  const written: string[] = [];
  const destination = { write: (text: string) => void written.push(text) };
  return { written, logger: createLogger({ level, format, destination }) };
}

describe("as text", () => {
  test("an entry is a line: time, level, message and fields", () => {
    const { written, logger } = logged("text");
    logger.warn({ resource: "services", revision: 7, words: "two words" }, "it happened");
    expect(written).toEqual([
      expect.stringMatching(
        /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARN {2}it happened resource=services revision=7 words="two words"\n$/,
      ),
    ]);
  });

  test("text from outside can neither begin a new line nor move the cursor", () => {
    const { written, logger } = logged("text");
    logger.info({ key: "a\n2031-01-01 FATAL \u001b[2J" }, "from\r\noutside\u202e");
    expect(written).toHaveLength(1);
    expect(written[0]).toMatch(/^[ -~]+\n$/);
  });

  test("a warning has its error's message, an error also the stack trace", () => {
    const { written, logger } = logged("text");
    const err = new Error("no luck");
    logger.warn({ err }, "tried");
    logger.error({ err }, "failed");
    expect(written[0]).toMatch(/ WARN {2}tried error="no luck"\n$/);
    expect(written[1]).toMatch(/ ERROR failed error="no luck"\nError: no luck\n +at /);
  });
});

describe("as JSON", () => {
  test("an entry is one object on one line, with the level's name", () => {
    const { written, logger } = logged("json");
    logger.info({ resource: "services" }, "it happened");
    expect(written).toHaveLength(1);
    expect(JSON.parse(written[0] ?? "")).toEqual({
      level: "info",
      time: expect.any(String),
      resource: "services",
      msg: "it happened",
    });
  });
});

describe.each(["text", "json"] as const)("an expected error, as %s,", (format) => {
  test.each([
    [
      "No etcd. Try again.: ECONNREFUSED",
      upstreamUnavailable("No etcd. Try again.", new Error("ECONNREFUSED")),
    ],
    ["EMFILE", Object.assign(new Error("accept EMFILE"), { syscall: "accept" })],
  ])("is one line without a stack trace, at any level: %s", (expected, err) => {
    const { written, logger } = logged(format);
    logger.error({ err }, "it failed");
    expect(written).toHaveLength(1);
    expect(written[0]).toMatch(/^[^\n]*\n$/);
    expect(written[0]).toContain(expected);
    expect(written[0]).not.toContain("serve-logger.test.ts");
  });

  test("has what a failed connection is due to once, without what grpc-js says around it", () => {
    const { written, logger } = logged(format);
    const refused = "connect ECONNREFUSED 127.0.0.1:1";
    const details = `No connection established. Last error: Error: ${refused}. Resolution note: `;
    const cause = Object.assign(new Error(`14 UNAVAILABLE: ${details}`), { code: 14, details });
    logger.warn({ err: upstreamUnavailable(`No response: ${refused}.`, cause) }, "it failed");
    logger.warn({ err: upstreamUnavailable("No etcd.", cause) }, "it failed, too");
    expect(written[0]).toMatch(/No response: connect ECONNREFUSED 127.0.0.1:1\."/);
    expect(written[1]).toMatch(/No etcd\.: connect ECONNREFUSED 127.0.0.1:1"/);
  });

  test("has its causes, each once", () => {
    const { written, logger } = logged(format);
    const refused = new Error("connect ECONNREFUSED");
    const err = upstreamUnavailable(
      "No etcd (it is away).",
      new Error("it is away", { cause: refused }),
    );
    logger.warn({ err }, "it failed");
    expect(written[0]).toContain("No etcd (it is away).: connect ECONNREFUSED");
  });
});

test.each(["text", "json"] as const)("an unexpected error has its stack trace, as %s", (format) => {
  for (const err of [new TypeError("oh"), new WatchFanoutError("INTERNAL", "oh")]) {
    const { written, logger } = logged(format);
    logger.error({ err }, "it failed");
    expect(written[0]).toContain("serve-logger.test.ts");
  }
});

test.each(["text", "json"] as const)("lines below the level are not written, as %s", (format) => {
  const { written, logger } = logged(format, "error");
  logger.warn("never mind");
  expect(written).toEqual([]);
});

test("A line that is written while a traced call is handled has the trace, until its span has ended", async () => {
  const { written, logger } = logged("json");
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  onTestFinished(() => context.disable());
  const span = new TracerProvider().getTracer("test").startSpan("a");
  await context.with(trace.setSpan(context.active(), span), async () => {
    await Promise.resolve();
    logger.info("during");
    span.end();
    logger.info("in the background");
  });
  const { traceId, spanId } = span.spanContext();
  const lines = written.map((line) => JSON.parse(line));
  expect(lines[0]).toMatchObject({ trace_id: traceId, span_id: spanId });
  expect(lines[1]).not.toHaveProperty("trace_id");
});
