import { Metadata, type ServiceError, status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { type Reason, WatchFanoutError } from "../../src/base/errors.ts";
import { errorOf, retryDelayMs } from "../../src/wire/call-error.ts";
import { statusOf } from "../../src/wire/errors.ts";
import fc from "../property.ts";

/** As grpc-js passes it to a client. */
function received(sent: ReturnType<typeof statusOf>): ServiceError {
  return Object.assign(new Error(`${sent.code}: ${sent.details}`), sent);
}

function bare(code: status, details: string): ServiceError {
  return received({ code, details, metadata: new Metadata() });
}

describe("A reason on the wire", () => {
  const table: readonly [Reason, keyof typeof status, boolean][] = [
    ["INVALID_REQUEST", "INVALID_ARGUMENT", false],
    ["UNKNOWN_RESOURCE", "NOT_FOUND", false],
    ["OBJECT_NOT_FOUND", "NOT_FOUND", false],
    ["REVISION_TOO_OLD", "OUT_OF_RANGE", false],
    ["REVISION_TOO_NEW", "UNAVAILABLE", true],
    ["HISTORY_CHANGED", "OUT_OF_RANGE", false],
    ["HISTORY_LOST", "OUT_OF_RANGE", false],
    ["SLOW_CONSUMER", "RESOURCE_EXHAUSTED", false],
    ["REVISION_CONFLICT", "ABORTED", false],
    ["OUTCOME_UNKNOWN", "UNKNOWN", false],
    ["LEASE_NOT_FOUND", "FAILED_PRECONDITION", false],
    ["VALUE_TOO_LARGE", "INVALID_ARGUMENT", false],
    ["LIST_TOO_LARGE", "RESOURCE_EXHAUSTED", false],
    ["REQUEST_ID_REUSED", "ALREADY_EXISTS", false],
    ["TRANSACTION_TOO_LARGE", "INVALID_ARGUMENT", false],
    ["TOO_MANY_LEASES", "RESOURCE_EXHAUSTED", false],
    ["STORAGE_FULL", "UNAVAILABLE", true],
    ["UPSTREAM_DENIED", "INTERNAL", false],
    ["UPSTREAM_UNAVAILABLE", "UNAVAILABLE", true],
    ["INTERNAL", "INTERNAL", false],
    ["NOT_READY", "UNAVAILABLE", true],
    ["DRAINING", "UNAVAILABLE", true],
    ["TOO_MANY_STREAMS", "RESOURCE_EXHAUSTED", true],
    ["UNAUTHENTICATED", "UNAUTHENTICATED", false],
    ["PERMISSION_DENIED", "PERMISSION_DENIED", false],
  ];

  test.each(table)("%s is %s, with a time to retry: %s", (reason, code, retries) => {
    const error = new WatchFanoutError(reason, "Something, and what to do.", {
      metadata: { revision: "17" },
    });
    const sent = statusOf(error);
    expect(sent.code).toBe(status[code]);
    const understood = errorOf(received(sent));
    expect(understood).toMatchObject({
      reason,
      message: error.message,
      metadata: error.metadata,
      field: undefined,
    });
    expect(retryDelayMs(received(sent)) !== undefined).toBe(retries);
  });

  test("carries the field that is wrong", () => {
    const error = new WatchFanoutError("INVALID_REQUEST", "No.", { field: "bookmark_interval" });
    expect(errorOf(received(statusOf(error))).field).toBe("bookmark_interval");
  });

  test.each([
    [0, 500],
    [0.25, 750],
    [0.9999, 1500],
  ])("spreads retries: at random %d after %d ms", (random, delay) => {
    const error = new WatchFanoutError("DRAINING", "Going.");
    expect(retryDelayMs(received(statusOf(error, () => random)))).toBe(delay);
  });

  test("stays sendable and small, whatever the message and metadata", () => {
    const anything = fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map(unit) });
    const long = fc.string({
      unit: fc.constantFrom("a", "é", "€", "😀", "\n", "%"),
      minLength: 2000,
    });
    fc.assert(
      fc.property(fc.oneof(anything, long), fc.oneof(anything, long), (message, value) => {
        const error = new WatchFanoutError("UNKNOWN_RESOURCE", message, {
          metadata: { resource: value },
          field: "resource",
        });
        const sent = statusOf(error);
        const encoded = encodeURI(sent.details);
        const trailers = Object.values(sent.metadata.toHttp2Headers()).join("");
        expect(encoded.length + trailers.length).toBeLessThan(8_000);
        const understood = errorOf(received(sent));
        expect(understood.message).toBe(sent.details);
        expect(error.message.toWellFormed().startsWith(understood.message.replace(/…$/, ""))).toBe(
          true,
        );
      }),
      { numRuns: 50 },
    );
  });
});

function unit(code: number): string {
  return String.fromCharCode(code);
}

describe("An end that is not watch-fanout's own word", () => {
  const byClient = "Received RST_STREAM with code 2 triggered by internal client error";

  test.each<[keyof typeof status, string, Reason]>([
    ["UNAVAILABLE", "No connection established", "UPSTREAM_UNAVAILABLE"],
    ["DEADLINE_EXCEEDED", "Deadline exceeded", "UPSTREAM_UNAVAILABLE"],
    ["CANCELLED", "Cancelled on client", "UPSTREAM_UNAVAILABLE"],
    ["RESOURCE_EXHAUSTED", "Bandwidth exhausted or memory limit exceeded", "SLOW_CONSUMER"],
    ["RESOURCE_EXHAUSTED", "Received message larger than max (5 vs. 4)", "VALUE_TOO_LARGE"],
    ["INVALID_ARGUMENT", "no", "INVALID_REQUEST"],
    ["UNAUTHENTICATED", "no", "UNAUTHENTICATED"],
    ["PERMISSION_DENIED", "no", "PERMISSION_DENIED"],
    ["UNIMPLEMENTED", "no such method", "INTERNAL"],
    ["INTERNAL", `${byClient}: Invalid packet`, "INTERNAL"],
    [
      "INTERNAL",
      "Received RST_STREAM with code 0 (Call ended without gRPC status)",
      "UPSTREAM_UNAVAILABLE",
    ],
    ["INTERNAL", `${byClient}: The session has been destroyed`, "UPSTREAM_UNAVAILABLE"],
    [
      "INTERNAL",
      `${byClient}: New streams cannot be created after receiving a GOAWAY`,
      "UPSTREAM_UNAVAILABLE",
    ],
  ])("%s, %s is taken as %s", (code, details, reason) => {
    const failure = bare(status[code], details);
    const error = errorOf(failure);
    expect(error).toMatchObject({ reason, message: details, cause: failure });
    expect(retryDelayMs(failure)).toBeUndefined();
  });

  test("is classified by its code if the details are garbage or from another service", () => {
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => {
        const failure = bare(status.UNAVAILABLE, "gone");
        failure.metadata.set("grpc-status-details-bin", Buffer.from(bytes));
        expect(errorOf(failure).reason).toBe("UPSTREAM_UNAVAILABLE");
      }),
    );
  });

  test("may come without metadata", () => {
    const failure = Object.assign(new Error("x"), { code: status.UNAVAILABLE, details: "" });
    expect(errorOf(failure as ServiceError).message).toBe("x");
  });
});
