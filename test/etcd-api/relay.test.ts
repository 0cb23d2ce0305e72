import { createServer } from "node:http2";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { framed } from "../server/http2/raw-connection.ts";
import { type Front, frontOfFile, metricOf, startFront, until } from "./front.ts";
import { RawGrpc, type RawResponse, statusOf } from "./raw-grpc.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () => startFront([(await etcdOf()).url]));

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let relayed: RawGrpc;

beforeAll(async () => {
  etcd = await etcdOf();
  front = await frontOf();
  direct = new RawGrpc(etcd.url);
  relayed = new RawGrpc(front.url);
});

afterAll(() => {
  direct.close();
  relayed.close();
});

const put = (key: string, value: string | Buffer = "v", fields = {}): Buffer =>
  encode({ 1: key, 2: value, ...fields });
const range = (key: string, fields = {}): Buffer => encode({ 1: key, ...fields });
const watch = (key: string, fields = {}): Buffer => encode({ 1: encode({ 1: key, ...fields }) });

/** Requests that etcd refuses without a change, and its own path for them. */
const refused: readonly [name: string, path: string, request: Buffer][] = [
  ["an empty key", "/etcdserverpb.KV/Put", put("")],
  ["a lease that does not exist", "/etcdserverpb.KV/Put", put("k", "v", { 3: 4242 })],
  ["a future revision", "/etcdserverpb.KV/Range", range("k", { 4: 1_000_000 })],
  ["a request that is too large", "/etcdserverpb.KV/Put", put("k", Buffer.alloc(1_600_000))],
  ["bytes that are no message", "/etcdserverpb.KV/Range", Buffer.from([0xff, 0xff])],
  ["an unknown lease", "/etcdserverpb.Lease/LeaseRevoke", encode({ 1: 4242 })],
  ["authentication that is off", "/etcdserverpb.Auth/Authenticate", encode({ 1: "a", 2: "b" })],
  ["a user that does not exist", "/etcdserverpb.Auth/UserGet", encode({ 1: "nobody" })],
  ["a member that does not exist", "/etcdserverpb.Cluster/MemberRemove", encode({ 1: 4242 })],
  ["a method that etcd does not have", "/etcdserverpb.KV/Future", encode({})],
  ["a service that etcd does not have", "/etcdserverpb.Future/Method", encode({})],
];

describe("The relay passes on", () => {
  test.each(refused)("etcd's refusal of %s, byte by byte", async (_, path, request) => {
    // Not at once: etcd never responds to a change of members that comes while another one is applied.
    const own = await relayed.unary(path, request);
    const other = await direct.unary(path, request);
    expect(statusOf(other).code).toMatch(/^[1-9]/);
    expect(comparable(own)).toEqual(comparable(other));
  });

  test("a response with its headers, bytes and trailers", async () => {
    await direct.unary("/etcdserverpb.KV/Put", put("relay/a", "first"));
    const [own, other] = await Promise.all([
      relayed.unary("/etcdserverpb.KV/Range", range("relay/a")),
      direct.unary("/etcdserverpb.KV/Range", range("relay/a")),
    ]);
    expect(comparable(own)).toEqual(comparable(other));
  });

  test("white space around a token and a message, which HTTP/2 of Node.js would drop with them", async () => {
    const tokens: unknown[] = [];
    const member = createServer({ strictFieldWhitespaceValidation: false });
    member.on("stream", (stream, { token }) => {
      tokens.push(token);
      const trailers = { "grpc-status": "16", "grpc-message": "invalid token " };
      stream.respond({ ":status": 200, ...trailers }, { endStream: true });
    });
    await new Promise<void>((resolve) => void member.listen(0, "127.0.0.1", resolve));
    const { port } = member.address() as AddressInfo;
    const other = await startFront([`http://127.0.0.1:${port}`]);
    const client = new RawGrpc(other.url, undefined, { strictFieldWhitespaceValidation: false });
    const response = await client.unary("/etcdserverpb.KV/Put", put("a"), { token: "a.1 " });
    expect(statusOf(response)).toEqual({ code: "16", message: "invalid token " });
    expect(tokens).toEqual(["a.1 "]);
    client.close();
    await other.stop();
    member.close();
  });

  test("a deadline, at which it ends a call with etcd's own status", async () => {
    const statusFrom = async (client: RawGrpc) => {
      const call = client.open("/etcdserverpb.Watch/Watch", { "grpc-timeout": "50m" });
      call.send(watch("relay/deadline"));
      const { code, message } = statusOf(await call.response);
      return { code, message: decodeURIComponent(message) };
    };
    const other = await statusFrom(direct);
    expect(other.code).toBe("4");
    expect(await statusFrom(relayed)).toEqual(other);
  });

  test("metadata: etcd checks the client's token, hasleader and API version", async () => {
    const metadata = { hasleader: "true", "client-api-version": "3.5", token: "none.1" };
    const { trailers } = await relayed.unary("/etcdserverpb.KV/Put", put("relay/b"), metadata);
    expect(trailers?.["grpc-status"]).toBe("0");
    const counted = await fetch(`${etcd.url}/metrics`);
    expect(await counted.text()).toMatch(
      /client_requests_total\{client_api_version="3.5",type="unary"\}/,
    );
  });

  test("a deadline: etcd ends a call whose time is over", async () => {
    const response = await relayed.unary("/v3lockpb.Lock/Lock", encode({ 1: "relay/lock" }));
    expect(statusOf(response).code).toBe("0");
    const late = await relayed.unary("/v3lockpb.Lock/Lock", encode({ 1: "relay/lock" }), {
      "grpc-timeout": "50m",
    });
    expect(statusOf(late).code).toBe("4");
  });

  test("nothing of packages that are not etcd's", async () => {
    const response = await relayed.unary("/other.Service/Method", encode({}));
    expect(statusOf(response)).toEqual({
      code: "12",
      message: "The server does not implement the method /other.Service/Method",
    });
  });
});

describe("A stream", () => {
  test("of a client that has half-closed continues (etcd issues 18230, 18011, 13909)", async () => {
    const call = relayed.open("/etcdserverpb.Watch/Watch");
    call.send(watch("half/a"));
    call.halfClose();
    await call.untilMessages(1);
    await direct.unary("/etcdserverpb.KV/Put", put("half/a"));
    const [, event] = await call.untilMessages(2);
    expect(new Message(event ?? Buffer.of()).messages(11)).toHaveLength(1);
    call.cancel();
  });

  test("of keep-alives is answered when its client half-closes, and ends with OK (etcd issue 9751)", async () => {
    const granted = await relayed.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 60 }));
    const lease = new Message(granted.body.subarray(5)).integer(2);
    const call = relayed.open("/etcdserverpb.Lease/LeaseKeepAlive");
    call.send(encode({ 1: lease }));
    call.halfClose();
    const response = await call.response;
    expect(statusOf(response).code).toBe("0");
    expect(call.messages).toHaveLength(1);
  });

  test("reports the revisions in all of its responses, below which no cache answers", async () => {
    const granted = await relayed.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 60 }));
    const lease = new Message(granted.body.subarray(5)).integer(2);
    const call = relayed.open("/etcdserverpb.Lease/LeaseKeepAlive");
    for (let sent = 1; sent <= 3; sent++) {
      const response = await direct.unary("/etcdserverpb.KV/Put", put("told/a"));
      const revision = new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
      expect(await metricOf(front, "watch_fanout_etcd_api_revision")).toBeLessThan(revision);
      call.send(encode({ 1: lease }));
      await call.untilMessages(sent);
      expect(await metricOf(front, "watch_fanout_etcd_api_revision")).toBe(revision);
    }
    call.cancel();
  });

  test("reports the revision of a RangeStream as well, which only etcd from 3.7 on has", async () => {
    const header = encode({ 1: 7, 2: 8, 3: 123_456, 4: 9 });
    const parts = [encode({ 2: "objects".repeat(100) }), encode({ 1: header, 2: "objects" })];
    const member = createServer().on("stream", (stream) => {
      stream.respond({ ":status": 200 }, { waitForTrailers: true });
      stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": "0" }));
      stream.end(Buffer.concat(parts.map((part) => framed(encode({ 1: part })))));
    });
    await new Promise<void>((resolve) => void member.listen(0, "127.0.0.1", resolve));
    const { port } = member.address() as AddressInfo;
    const newer = await startFront([`http://127.0.0.1:${port}`]);
    const client = new RawGrpc(newer.url);
    const response = await client.unary("/etcdserverpb.KV/RangeStream", range("a"));
    expect(statusOf(response).code).toBe("0");
    expect(await metricOf(newer, "watch_fanout_etcd_api_revision")).toBe(123_456);
    client.close();
    await newer.stop();
    member.close();
  });

  test("of keep-alives renews a lease only when its client asks (etcd issue 13031)", async () => {
    const granted = await relayed.unary("/etcdserverpb.Lease/LeaseGrant", encode({ 1: 1 }));
    const lease = new Message(granted.body.subarray(5)).integer(2);
    await relayed.unary("/etcdserverpb.KV/Put", put("lease/a", "v", { 3: lease }));
    const events = relayed.open("/etcdserverpb.Watch/Watch");
    events.send(watch("lease/a"));
    const call = relayed.open("/etcdserverpb.Lease/LeaseKeepAlive");
    call.send(encode({ 1: lease }));
    await call.untilMessages(1);
    // The stream stays open, and the lease expires.
    const [, expiry] = await events.untilMessages(2);
    expect(new Message(expiry ?? Buffer.of()).messages(11)[0]?.number(1)).toBe(1);
    events.cancel();
    call.cancel();
  });

  test("answers a request for progress (etcd issue 19710)", async () => {
    const call = relayed.open("/etcdserverpb.Watch/Watch");
    call.send(watch("progress/a"));
    await call.untilMessages(1);
    call.send(encode({ 3: Buffer.of() }));
    const [, progress] = await call.untilMessages(2);
    expect(new Message(progress ?? Buffer.of()).integer(2)).toBe(-1n);
    call.cancel();
  });

  test("names the client's own watch ids, and refuses one twice", async () => {
    const call = relayed.open("/etcdserverpb.Watch/Watch");
    call.send(watch("ids/a", { 7: 77 }));
    call.send(watch("ids/b", { 7: 77 }));
    const [first, second] = await call.untilMessages(2);
    expect(new Message(first ?? Buffer.of()).integer(2)).toBe(77n);
    expect(new Message(second ?? Buffer.of()).text(6)).toContain("duplicate watch ID");
    call.cancel();
  });

  test("that its client cancels ends at etcd", async () => {
    await until(async () => (await openWatchStreams(etcd)) === 0);
    const calls = Array.from({ length: 20 }, () => relayed.open("/etcdserverpb.Watch/Watch"));
    for (const call of calls) call.send(watch("cancel/a"));
    await Promise.all(calls.map((call) => call.untilMessages(1)));
    expect(await openWatchStreams(etcd)).toBe(20);
    for (const call of calls) call.cancel();
    await until(async () => (await openWatchStreams(etcd)) === 0);
    await until(async () => (await metricOf(front, "watch_fanout_etcd_api_calls")) === 0);
  });

  test("of a lost connection ends at etcd", async () => {
    const other = new RawGrpc(front.url);
    const call = other.open("/etcdserverpb.Watch/Watch");
    call.send(watch("lost/a"));
    await call.untilMessages(1);
    other.close();
    await until(async () => (await openWatchStreams(etcd)) === 0);
  });
});

async function openWatchStreams({ url }: Etcd): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(/^etcd_debugging_mvcc_watch_stream_total (\d+)/m.exec(text)?.[1]);
}

/** What must be equal. Two responses of etcd itself differ in the header's raft term and revision only with writes. */
function comparable({ headers, body, trailers, rstCode }: RawResponse): object {
  return { headers, body: body.toString("hex"), trailers, rstCode };
}
