import { type DestinationStream, pino } from "pino";
import { expect, test } from "vitest";
import type { CallSpan } from "../../../src/server/calls/call-span.ts";
import { toClientError } from "../../../src/server/calls/refusals.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import { tracedOpening } from "../../../src/server/services/watch-handler.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const spanId = "b7ad6b7169203331";

/** The line about an internal error of a call. */
function lineOf(call: { traceId: string | undefined; span: CallSpan | undefined }): unknown {
  const lines: string[] = [];
  const destination: DestinationStream = { write: (line) => void lines.push(line) };
  toClientError(new Error("a bug"), "a.B/C", pino({}, destination), call);
  return JSON.parse(lines.join(""));
}

function spanOf(id: string | undefined): CallSpan {
  return {
    ...{ traceId, spanId: id, authenticated: () => {}, run: (work) => work() },
    ...{ event: () => {}, end: () => {} },
  };
}

test("A watch that is not recorded is opened as it is, and its stream retains no span", () => {
  const watch = { read: () => undefined } as unknown as WatchStream;
  const unrecorded = { span: spanOf(undefined) } as ServerCall;
  expect(tracedOpening(unrecorded, watch, {})).toBe(watch);
  expect(unrecorded.span).toBeUndefined();
  const recorded = { span: spanOf(spanId) } as ServerCall;
  expect(tracedOpening(recorded, watch, {})).not.toBe(watch);
});

test("The line about an internal error has the trace of its call, and its span if that is recorded", () => {
  const span = spanOf(spanId);
  expect(lineOf({ traceId, span })).toMatchObject({ trace_id: traceId, span_id: spanId });
  const sent = lineOf({ traceId, span: undefined });
  expect(sent).toMatchObject({ trace_id: traceId });
  expect(sent).not.toHaveProperty("span_id");
  expect(lineOf({ traceId: undefined, span: undefined })).not.toHaveProperty("trace_id");
});
