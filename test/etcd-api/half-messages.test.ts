import { once } from "node:events";
import { constants, createServer, type ServerHttp2Stream } from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { EtcdApi } from "../../src/etcd-api/etcd-api.ts";
import { framed } from "../server/http2/raw-connection.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { serve } from "../server/served.ts";
import { type RawCall, RawGrpc, type RawResponse, statusOf } from "./raw-grpc.ts";

const {
  NGHTTP2_CANCEL,
  NGHTTP2_ENHANCE_YOUR_CALM,
  NGHTTP2_INTERNAL_ERROR,
  NGHTTP2_REFUSED_STREAM,
} = constants;

const rangePath = "/etcdserverpb.KV/Range";
const watchPath = "/etcdserverpb.Watch/Watch";

const whole = framed(Buffer.alloc(1_000, 1));
const half = whole.subarray(0, 500);

/** A member of etcd that sends these bytes of a response, and no end. */
async function memberWith(response: Buffer): Promise<{
  readonly url: string;
  readonly streams: ServerHttp2Stream[];
  cut(): void;
}> {
  const sockets = new Set<Socket>();
  const streams: ServerHttp2Stream[] = [];
  const member = createServer();
  member.on("connection", (socket: Socket) => sockets.add(socket));
  member.on("stream", (stream) => {
    streams.push(stream);
    stream.on("error", () => {});
    stream.resume();
    stream.respond({ "content-type": "application/grpc" }, { waitForTrailers: true });
    stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
    stream.write(response);
  });
  await once(member.listen(0, "127.0.0.1"), "listening");
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(() => {
    member.close();
    cut();
  });
  const url = `http://127.0.0.1:${(member.address() as AddressInfo).port}`;
  return { url, streams, cut };
}

/** A call through a server to a member that has sent these bytes of its response, which the client has received. */
async function begun(path: string, response: Buffer, metadata = {}, limits = {}) {
  const member = await memberWith(response);
  const clock = new ManualTimers();
  const api = new EtcdApi({
    endpoints: [member.url],
    tls: undefined,
    progressIntervalMs: 600_000,
    clock,
    logger: pino({ level: "silent" }),
  });
  onTestFinished(() => api.close());
  const { server, recorder } = await serve(new Map(), clock, { rawServices: api, limits });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(() => client.close());
  const call = client.open(path, metadata);
  call.send(Buffer.of());
  await received(call, response.length);
  return { member, clock, api, server, recorder, client, call };
}

/** Waits until the client has received this many bytes of the response. */
async function received({ stream }: RawCall, bytes: number): Promise<void> {
  let count = 0;
  const onData = ({ length }: Buffer): void => {
    count += length;
  };
  stream.on("data", onData);
  while (count < bytes) await once(stream, "data");
  stream.off("data", onData);
}

/** Resolves once the peer has received everything that was sent on the connection of this stream. */
async function arrived({ session }: ServerHttp2Stream): Promise<void> {
  // The second ping is behind whatever the first one has overtaken.
  for (let i = 0; i < 2; i++) await new Promise((resolve) => session?.ping(resolve));
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

function endingOf({ rstCode, trailers }: RawResponse): object {
  return { rstCode, hasTrailers: trailers !== undefined };
}

describe("A relayed call that ends within a message is reset, as no status can follow", () => {
  test.each([
    ["a read", rangePath, NGHTTP2_REFUSED_STREAM, "UNAVAILABLE"],
    ["a watch", watchPath, NGHTTP2_REFUSED_STREAM, "UNAVAILABLE"],
    [
      "a write, which must not be repeated",
      "/etcdserverpb.KV/Txn",
      NGHTTP2_INTERNAL_ERROR,
      "INTERNAL",
    ],
    ["a method that is not known", "/etcdserverpb.KV/Future", NGHTTP2_INTERNAL_ERROR, "INTERNAL"],
  ])("when the connection to etcd is lost: %s", async (_, path, rstCode, code) => {
    const { member, call, recorder } = await begun(path, half);
    member.cut();
    expect(endingOf(await call.response)).toEqual({ rstCode, hasTrailers: false });
    await recorder.untilEnded(1);
    expect(recorder.calls[0]?.code).toBe(code);
  });

  test.each([
    ["its prefix", whole.subarray(0, 3)],
    ["its prefix, which is complete", whole.subarray(0, 5)],
    ["its header", whole.subarray(0, 40)],
    ["its last byte", whole.subarray(0, -1)],
    ["the prefix of the next message", Buffer.concat([whole, whole.subarray(0, 1)])],
  ])("wherever it is cut: in %s", async (_, response) => {
    const { member, call } = await begun(watchPath, response);
    member.cut();
    const ending = { rstCode: NGHTTP2_REFUSED_STREAM, hasTrailers: false };
    expect(endingOf(await call.response)).toEqual(ending);
  });

  test.each([
    ["a read", rangePath, NGHTTP2_REFUSED_STREAM],
    [
      "a write, of which etcd has begun the response",
      "/etcdserverpb.KV/Txn",
      NGHTTP2_INTERNAL_ERROR,
    ],
  ])("when etcd refuses the stream: %s", async (_, path, rstCode) => {
    const { member, call } = await begun(path, half);
    member.streams[0]?.close(NGHTTP2_REFUSED_STREAM);
    expect(endingOf(await call.response)).toEqual({ rstCode, hasTrailers: false });
  });

  test("when the deadline has passed, not before, in full precision", async () => {
    const { clock, api, client, call, recorder } = await begun(rangePath, half, {
      "grpc-timeout": "999700u",
    });
    clock.advance(999.6);
    expect(api.stats().calls).toBe(1);
    clock.advance(0.4);
    expect(api.stats().calls).toBe(0);
    // The client cancels the call itself. If the call had been reset, this client would know it before this response.
    await client.unary("/other.Service/Method", Buffer.of());
    expect(call.stream.closed).toBe(false);
    clock.advance(1_000);
    const ending = { rstCode: NGHTTP2_CANCEL, hasTrailers: false };
    expect(endingOf(await call.response)).toEqual(ending);
    await recorder.untilEnded(2);
    expect(recorder.calls[1]?.code).toBe("DEADLINE_EXCEEDED");
  });

  test("by its client after the deadline, which counts as DEADLINE_EXCEEDED", async () => {
    const { clock, call, recorder } = await begun(rangePath, half, { "grpc-timeout": "50m" });
    clock.advance(50);
    call.cancel();
    await recorder.untilEnded(1);
    expect(recorder.calls[0]?.code).toBe("DEADLINE_EXCEEDED");
  });

  test("when the service shuts down", async () => {
    const { api, call } = await begun(watchPath, half);
    api.drain();
    const ending = { rstCode: NGHTTP2_REFUSED_STREAM, hasTrailers: false };
    expect(endingOf(await call.response)).toEqual(ending);
  });
});

test.each([
  NGHTTP2_CANCEL,
  NGHTTP2_INTERNAL_ERROR,
  NGHTTP2_REFUSED_STREAM,
  NGHTTP2_ENHANCE_YOUR_CALM,
])("A call that its client resets counts as CANCELLED, also with code %i", async (rstCode) => {
  const { call, recorder } = await begun(rangePath, half);
  call.stream.close(rstCode);
  await recorder.untilEnded(1);
  expect(recorder.calls[0]?.code).toBe("CANCELLED");
});

describe("A relayed call that ends behind whole messages has its status", () => {
  test.each([
    ["a read", rangePath],
    ["a write", "/etcdserverpb.KV/Txn"],
    ["a watch", watchPath],
  ])("when the connection to etcd is lost: %s", async (_, path) => {
    const { member, call } = await begun(path, whole);
    member.cut();
    const response = await call.response;
    expect(statusOf(response)).toMatchObject({ code: "14" });
    expect(decodeURIComponent(statusOf(response).message)).toContain(
      "the connection to etcd was lost",
    );
    expect(response.body).toEqual(whole);
  });

  test("when the deadline has passed", async () => {
    const { clock, call } = await begun(watchPath, whole, { "grpc-timeout": "50m" });
    clock.advance(50);
    expect(statusOf(await call.response).code).toBe("4");
  });

  test("when etcd refuses the stream of a write: not the text after which it is repeated", async () => {
    const { member, call } = await begun("/etcdserverpb.KV/Txn", whole);
    member.streams[0]?.close(NGHTTP2_REFUSED_STREAM);
    const { code, message } = statusOf(await call.response);
    expect(code).toBe("14");
    expect(decodeURIComponent(message)).toBe("etcd refused the stream within its response");
  });
});

describe("When the connection to etcd is lost, a client still gets what had arrived by then", () => {
  test("if it reads slowly: also the end of a response that is complete", async () => {
    const { member, api, call } = await begun(watchPath, whole);
    const [stream] = member.streams as [ServerHttp2Stream];
    call.stream.pause();
    // More than the client's flow control accepts at once, and less than that of the relay.
    stream.write(framed(Buffer.alloc(100_000, 1)));
    await arrived(stream);
    stream.end(whole);
    await once(stream, "wantTrailers");
    await arrived(stream);
    member.cut();
    await until(() => api.stats().connections === 0);
    call.stream.resume();
    expect(statusOf(await call.response).code).toBe("0");
    expect(call.messages.map(({ length }) => length)).toEqual([1_000, 100_000, 1_000]);
  });

  test("if its caller gets more than it may per second", async () => {
    const limits = { maxSendRatePerIdentity: 500 };
    const { member, api, clock, server, call } = await begun(watchPath, whole, {}, limits);
    const [stream] = member.streams as [ServerHttp2Stream];
    stream.write(whole);
    await until(() => server.stats().callers.pacedStreams === 1);
    member.cut();
    await until(() => api.stats().connections === 0);
    clock.advance(2_000);
    expect(statusOf(await call.response).code).toBe("14");
    expect(call.messages.map(({ length }) => length)).toEqual([1_000, 1_000]);
  });
});

test("A client that reads slowly gets the messages before the one that is incomplete", async () => {
  // More than the client's flow control accepts at once, and less than that of the relay.
  const large = framed(Buffer.alloc(100_000, 1));
  const { member, client, call } = await begun(watchPath, whole);
  const [stream] = member.streams as [ServerHttp2Stream];
  call.stream.pause();
  stream.write(Buffer.concat([large, half]));
  stream.close(NGHTTP2_CANCEL);
  await once(stream, "close");
  await client.unary("/other.Service/Method", Buffer.of());
  call.stream.resume();
  const response = await call.response;
  expect(call.messages.map(({ length }) => length)).toEqual([1_000, 100_000]);
  expect(endingOf(response)).toEqual({ rstCode: NGHTTP2_CANCEL, hasTrailers: false });
});
