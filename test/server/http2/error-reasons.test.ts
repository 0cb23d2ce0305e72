import { gzipSync } from "node:zlib";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { reasons } from "../../../src/base/errors.ts";
import {
  definitions,
  healthService,
  listWatchService,
  reflectionServices,
} from "../../../src/wire/services.ts";
import { serveThings } from "../served.ts";
import { framed, type RawCall, RawConnection } from "./raw-connection.ts";

const { Get, Watch } = listWatchService;
const reflection = reflectionServices[0]?.ServerReflectionInfo.path ?? "";
const request = Get.requestSerialize({ resource: "things", key: "a" });

/** Marked as compressed. */
function compressed(message: Uint8Array): Buffer {
  const frame = framed(message);
  frame[0] = 1;
  return frame;
}

function announcing(bytes: number): Buffer {
  const frame = framed(request);
  frame.writeUInt32BE(bytes, 1);
  return frame;
}

interface Row {
  readonly what: string;
  readonly path?: string;
  readonly headers?: Record<string, string>;
  readonly send: readonly Uint8Array[];
  readonly code: keyof typeof status;
  readonly reason: string;
}

const rows: readonly Row[] = [
  {
    ...{ what: "an unknown method", path: "/watchfanout.v1.None/Such", send: [framed(request)] },
    ...{ code: "UNIMPLEMENTED", reason: "UNIMPLEMENTED" },
  },
  {
    ...{ what: "an unknown compression", headers: { "grpc-encoding": "snappy" } },
    ...{ send: [compressed(request)], code: "UNIMPLEMENTED", reason: "UNIMPLEMENTED" },
  },
  {
    ...{ what: "a compressed request without a compression", send: [compressed(request)] },
    ...{ code: "INTERNAL", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "damaged bytes", headers: { "grpc-encoding": "gzip" } },
    ...{ send: [compressed(gzipSync(request).subarray(0, -9))] },
    ...{ code: "INTERNAL", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "a deadline that is no duration", headers: { "grpc-timeout": "soon" } },
    ...{ send: [framed(request)], code: "INTERNAL", reason: "INVALID_REQUEST" },
  },
  { what: "no request", send: [], code: "UNIMPLEMENTED", reason: "INVALID_REQUEST" },
  {
    ...{ what: "half a request", send: [framed(request).subarray(0, -1)] },
    ...{ code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "half a request of a stream", path: reflection, send: [Buffer.of(0, 0)] },
    ...{ code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "a second request", send: [framed(request), framed(request)] },
    ...{ code: "UNIMPLEMENTED", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "a request that is too large", send: [announcing(1e9)] },
    ...{ code: "RESOURCE_EXHAUSTED", reason: "VALUE_TOO_LARGE" },
  },
  {
    ...{ what: "bytes that are no message", send: [framed(Buffer.of(0xff))] },
    ...{ code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST" },
  },
  {
    ...{ what: "a name that reflection does not take", path: reflection },
    ...{
      send: [framed(Buffer.of(0x22, 0x7f))],
      code: "INVALID_ARGUMENT",
      reason: "INVALID_REQUEST",
    },
  },
  {
    ...{ what: "the health of an unknown service", path: healthService.Check.path },
    ...{ send: [framed(healthService.Check.requestSerialize({ service: "none" }))] },
    ...{ code: "NOT_FOUND", reason: "UNKNOWN_RESOURCE" },
  },
];

/** The statuses that gRPC has for a call that can't be served have a reason, too. */
describe("An error of gRPC itself has a reason", () => {
  test.each(rows)("$what: $reason", async ({ path = Get.path, headers, send, code, reason }) => {
    const { server } = await serveThings();
    const call = new RawConnection(server.port).open(path, headers);
    for (const bytes of send) call.stream.write(bytes);
    call.stream.end();
    expect(await call.drain().ended).toMatchObject({ code: status[code], reason });
  });

  test("a request that does not arrive: DEADLINE_EXCEEDED", async () => {
    const { call, served } = await waiting({});
    served.clock.advance(61_000);
    const expected = { code: status.DEADLINE_EXCEEDED, reason: "DEADLINE_EXCEEDED" };
    expect(await call.drain().ended).toMatchObject(expected);
  });

  test("a deadline that has passed: DEADLINE_EXCEEDED", async () => {
    const { call, served } = await waiting({ "grpc-timeout": "5S" });
    served.clock.advance(6_000);
    const expected = { code: status.DEADLINE_EXCEEDED, reason: "DEADLINE_EXCEEDED" };
    expect(await call.drain().ended).toMatchObject(expected);
  });

  async function waiting(headers: Record<string, string>) {
    const served = await serveThings();
    const call: RawCall = new RawConnection(served.server.port).open(Watch.path, headers);
    await served.recorder.untilStarted(1);
    return { served, call };
  }
});

test("The enum of the contract has every reason, and those of gRPC itself", () => {
  const { type } = definitions["watchfanout.v1.ErrorReason"] as unknown as {
    readonly type: { readonly value: readonly { readonly name: string }[] };
  };
  const names = type.value.map(({ name }) => name);
  const own = ["ERROR_REASON_UNSPECIFIED", "UNIMPLEMENTED", "DEADLINE_EXCEEDED"];
  expect(new Set(names)).toEqual(new Set([...own, ...reasons]));
});
