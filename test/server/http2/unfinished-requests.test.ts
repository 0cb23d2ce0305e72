import { constants } from "node:http2";
import { status } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import {
  healthService,
  listWatchService,
  reflectionServices,
  writeService,
} from "../../../src/wire/services.ts";
import { type Served, serveThings } from "../served.ts";
import { framed, type RawCall, RawConnection } from "./raw-connection.ts";

const resource = "things";
const { Watch } = listWatchService;
const { Put } = writeService;
const { Check } = healthService;
const reflection = reflectionServices[0]?.ServerReflectionInfo.path ?? "";
const mebibyte = 1024 ** 2;

/** The beginning of a message whose prefix announces 1.9 MiB, with this many bytes. */
function beginning(bytes: number): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(1.9 * mebibyte, 1);
  return Buffer.concat([head, Buffer.alloc(bytes)]);
}

/** Sends it, and resolves when the server has accepted all of it, or the call has ended. */
function sent(call: RawCall, bytes: Buffer): Promise<unknown> {
  return Promise.race([
    new Promise((resolve) => call.stream.write(bytes, resolve)),
    call.drain().ended,
  ]);
}

/** Every kind of call that a client can open. */
const kinds: readonly (readonly [what: string, path: string, headers: Record<string, string>])[] = [
  ["a write", Put.path, {}],
  ["a watch", Watch.path, {}],
  ["a compressed write", Put.path, { "grpc-encoding": "gzip" }],
  ["a compressed watch", Watch.path, { "grpc-encoding": "deflate" }],
  ["a health check", Check.path, {}],
  ["a health watch", healthService.Watch.path, {}],
  ["a compressed health check", Check.path, { "grpc-encoding": "gzip" }],
];

describe.each(kinds)("The incomplete request of %s", (_what, path, headers) => {
  test("is refused after a minute", async () => {
    const served = await serveThings();
    const raw = new RawConnection(served.server.port);
    const call = raw.open(path, headers);
    call.stream.write(Buffer.of(0));
    await served.recorder.untilStarted(1);
    served.clock.advance(59_000);
    await served.client.list({ resource });
    expect(call.stream.closed).toBe(false);
    served.clock.advance(10_000);
    expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
  });

  test("is bounded in bytes together with those of its connection", async () => {
    const served = await serveThings();
    const raw = new RawConnection(served.server.port);
    const calls = Array.from({ length: 20 }, () => raw.open(path, headers));
    const ends: Promise<{ code: number | undefined }>[] = [];
    for (const call of calls) {
      call.stream.write(beginning(mebibyte));
      ends.push(call.drain().ended);
    }
    expect((await Promise.race(ends)).code).toBe(status.RESOURCE_EXHAUSTED);
  });
});

test("Calls that have sent nothing count, and requests that arrive completely at once do not", async () => {
  const served = await serveThings();
  const raw = new RawConnection(served.server.port);
  const requests = () => served.server.stats().requests;
  const calls = Array.from({ length: 100 }, () => raw.open(Put.path));
  await served.recorder.untilStarted(100);
  await served.client.list({ resource });
  expect(requests().bytes).toBe(100 * 1024);
  for (const call of calls) call.stream.close();
  while (requests().bytes > 0) await served.client.list({ resource });
  expect(requests().evictions).toBe(0);
});

test("A reflection stream without a request is refused after a minute", async () => {
  const served = await serveThings();
  const call = new RawConnection(served.server.port).open(reflection);
  call.stream.write(Buffer.of(0, 0, 0));
  await served.recorder.untilStarted(1);
  served.clock.advance(70_000);
  expect((await call.drain().ended).code).toBe(status.DEADLINE_EXCEEDED);
});

test("A reflection stream whose client resets it with NO_ERROR ends, though its requests are not read", async () => {
  const served = await serveThings();
  // It accepts no response, so all but the first request wait in the stream, in several chunks.
  const call = new RawConnection(served.server.port, 0).open(reflection);
  const requests = Buffer.concat(Array<Buffer>(6_000).fill(framed(Buffer.of(0x3a, 0))));
  call.stream.write(requests);
  await call.answered;
  call.stream.close(constants.NGHTTP2_NO_ERROR);
  await served.recorder.untilEnded(1);
  expect(served.server.stats().requests.bytes).toBe(0);
});

test("A reflection request longer than any name is refused as too large", async () => {
  const served = await serveThings();
  const call = new RawConnection(served.server.port).open(reflection);
  call.stream.write(beginning(0));
  expect((await call.drain().ended).code).toBe(status.RESOURCE_EXHAUSTED);
});

test("Calls of unknown methods retain nothing of their requests", async () => {
  const served = await serveThings();
  const call = new RawConnection(served.server.port).open("/watchfanout.v1.None/Such");
  call.stream.write(beginning(100_000));
  const { code, message } = await call.drain().ended;
  expect([code, message]).toEqual([
    status.UNIMPLEMENTED,
    "The server does not implement the method /watchfanout.v1.None/Such",
  ]);
});

describe("A connection that fills the bound for incomplete requests", () => {
  /** Connections with incomplete requests of 15 MiB each. */
  async function fill({ server }: Served, connections: number): Promise<RawCall[]> {
    const calls: RawCall[] = [];
    for (let i = 0; i < connections; i++) {
      const raw = new RawConnection(server.port);
      const opened = Array.from({ length: 15 }, () => raw.open(Put.path));
      await Promise.all(opened.map((call) => sent(call, beginning(mebibyte))));
      calls.push(...opened);
    }
    return calls;
  }

  test("loses its own requests, and leaves room for those of others", async () => {
    const served = await serveThings();
    const hostile = await fill(served, 6);
    const other = new RawConnection(served.server.port).open(Put.path);
    const value = Buffer.alloc(mebibyte);
    const large = framed(Put.requestSerialize({ resource, key: "a", value }));
    for (let from = 0; from < large.length; from += 1e5) {
      await sent(other, large.subarray(from, from + 1e5));
    }
    other.stream.end();
    expect((await other.ended).code).toBe(status.OK);
    const { code, message } = await Promise.race(hostile.map((call) => call.ended));
    expect(code).toBe(status.RESOURCE_EXHAUSTED);
    expect(message).toMatch(/^The requests of this connection.*16777216 bytes/);
  });

  test("still has requests served that arrive completely at once", async () => {
    const { server } = await serveThings();
    const raw = new RawConnection(server.port);
    // They leave less than 16,000 bytes of 16 MiB.
    const halves = Array.from({ length: 1_118 }, () => raw.open(Put.path));
    await Promise.all(halves.map((call) => sent(call, beginning(15_000))));
    const whole = Put.requestSerialize({ resource, key: "a", value: Buffer.alloc(16_000) });
    for (let i = 0; i < 100; i++) {
      expect((await raw.call(Put.path, whole).drain().ended).code).toBe(status.OK);
    }
  });
});
