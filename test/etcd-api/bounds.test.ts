import { once } from "node:events";
import { constants, createServer, type IncomingHttpHeaders } from "node:http2";
import {
  type AddressInfo,
  createServer as createTcpServer,
  connect as netConnect,
  type Socket,
} from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { defaultKeepalive, type Keepalive } from "../../src/etcd/client/member.ts";
import { addressOf, Http2Connection } from "../../src/etcd/client/upstream-connection.ts";
import { EtcdApi } from "../../src/etcd-api/etcd-api.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import type { AuditEntry, RunningServer, ServerOptions } from "../../src/server/server.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode } from "../foreign/protobuf.ts";
import { ManualTimers } from "../server/limits/manual-timers.ts";
import { authenticatorsOf } from "../server/rights/callers.ts";
import { serve } from "../server/served.ts";
import { RawGrpc, type RawResponse, statusOf } from "./raw-grpc.ts";

const etcdOf = etcdOfFile();

interface Bounded {
  readonly clock: ManualTimers;
  readonly api: EtcdApi;
  readonly server: RunningServer;
  readonly client: RawGrpc;
}

/** A server with the etcd API alone, on a clock that the test advances. */
async function bounded(
  { namespace, ...options }: Partial<ServerOptions> & { readonly namespace?: Buffer } = {},
  ...urls: readonly string[]
): Promise<Bounded> {
  const clock = new ManualTimers();
  const logger = pino({ level: "silent" });
  const endpoints = urls.length > 0 ? urls : [(await etcdOf()).url];
  const api = new EtcdApi({
    endpoints,
    tls: undefined,
    namespace,
    progressIntervalMs: 600_000,
    clock,
    logger,
  });
  onTestFinished(() => api.close());
  const { server } = await serve(new Map(), clock, { ...options, rawServices: api });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(() => client.close());
  return { clock, api, server, client };
}

const rangePath = "/etcdserverpb.KV/Range";
const watchPath = "/etcdserverpb.Watch/Watch";
const putPath = "/etcdserverpb.KV/Put";
const watchOf = (key: string): Buffer => encode({ 1: encode({ 1: key }) });

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

/** Lets seconds pass, each with a call, so that the connection to etcd is not idle. */
async function pass(clock: ManualTimers, server: RunningServer, seconds: number): Promise<void> {
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  for (let i = 0; i < seconds; i++) {
    clock.advance(1_000);
    await client.unary(rangePath, encode({ 1: "a" }));
  }
  client.close();
}

describe("A relayed call", () => {
  test("whose request does not arrive ends after a minute", async () => {
    const { clock, client, api } = await bounded();
    const call = client.open(rangePath);
    await until(() => api.stats().calls === 1);
    clock.advance(61_000);
    const { code, message } = statusOf(await call.response);
    expect([code, decodeURIComponent(message)]).toEqual([
      "4",
      "The request did not arrive within 60 s",
    ]);
    expect(api.stats().calls).toBe(0);
  });

  test("whose stream of requests is idle does not end", async () => {
    const { client, api, clock, server } = await bounded();
    const call = client.open(watchPath);
    await until(() => api.stats().connections === 1);
    await pass(clock, server, 61);
    call.send(watchOf("idle"));
    await call.untilMessages(1);
    call.cancel();
  });

  test("whose client accepts nothing for the stall timeout is reset, so that a watch resumes", async () => {
    const { clock, client, server, api } = await bounded();
    const call = client.open(watchPath);
    call.stream.pause();
    call.send(watchOf("stalled"));
    const direct = new RawGrpc((await etcdOf()).url);
    onTestFinished(() => direct.close());
    await until(() => call.headers !== undefined);
    await direct.unary(putPath, encode({ 1: "stalled", 2: Buffer.alloc(1_000_000) }));
    const unsent = (): number => server.stats().unsent.bytes;
    while (unsent() === 0) await pass(clock, server, 1);
    await pass(clock, server, 60);
    call.stream.resume();
    // Clients of gRPC see REFUSED_STREAM as UNAVAILABLE.
    expect((await call.response).rstCode).toBe(7);
    await until(() => api.stats().calls === 0 && unsent() === 0);
    expect(server.stats().slowCalls).toBe(1);
  });

  test("of a namespace has its whole response counted at once, until the client has accepted it", async () => {
    const { client, server } = await bounded({ namespace: Buffer.from("counted/") });
    const written = encode({ 1: "a", 2: Buffer.alloc(1_000_000) });
    expect(statusOf(await client.unary(putPath, written)).code).toBe("0");
    const call = client.open(rangePath);
    call.stream.pause();
    call.send(encode({ 1: "a" }));
    call.halfClose();
    const unsent = (): number => server.stats().unsent.bytes;
    // It is sent once it has arrived completely.
    await until(() => call.stream.readableLength > 0);
    expect(unsent()).toBeGreaterThan(1_000_000);
    expect(unsent()).toBeLessThan(1_100_000);
    call.stream.resume();
    expect(statusOf(await call.response).code).toBe("0");
    await until(() => unsent() === 0);
  });

  test("that has written, and whose response is not accepted, is reset with an end that clients do not repeat", async () => {
    const { clock, client, server, api } = await bounded();
    const direct = new RawGrpc((await etcdOf()).url);
    onTestFinished(() => direct.close());
    await direct.unary(putPath, encode({ 1: "written", 2: Buffer.alloc(1_000_000) }));
    const call = client.open(putPath);
    call.stream.pause();
    // With prev_kv, so that its response is larger than the window of the stream.
    call.send(encode({ 1: "written", 2: "new", 4: 1 }));
    call.halfClose();
    const unsent = (): number => server.stats().unsent.bytes;
    while (unsent() === 0) await pass(clock, server, 1);
    await pass(clock, server, 60);
    call.stream.resume();
    // gRPC for Go sends a call again that was reset with REFUSED_STREAM.
    expect((await call.response).rstCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    await until(() => api.stats().calls === 0 && unsent() === 0);
  });

  test("beyond the open streams is refused as UNAVAILABLE", async () => {
    const { client } = await bounded({ limits: { maxStreams: 2 } });
    const calls = [1, 2].map(() => client.open(watchPath));
    for (const call of calls) {
      call.send(watchOf("bound"));
      await call.untilMessages(1);
    }
    const refused = await client.unary(rangePath, encode({ 1: "a" }));
    expect(statusOf(refused).code).toBe("14");
    expect(decodeURIComponent(statusOf(refused).message)).toContain("--max-streams");
    // gRPC for Go makes INTERNAL of a status whose details have another code.
    expect({ ...refused.headers, ...refused.trailers }).not.toHaveProperty(
      "grpc-status-details-bin",
    );
  });

  test("ends when etcd does not answer pings (etcd issue 17366)", async () => {
    const { clock, client, api } = await bounded();
    const call = client.open(watchPath);
    call.send(watchOf("silent"));
    await call.untilMessages(1);
    const etcd = await etcdOf();
    await etcd.pause();
    try {
      // The first interval has seen the watch's response.
      clock.advance(7_000);
      clock.advance(7_000);
      clock.advance(3_000);
      const { code, message } = statusOf(await call.response);
      expect(code).toBe("14");
      expect(decodeURIComponent(message)).toContain("did not respond to a keepalive ping");
      expect(api.stats().connections).toBe(0);
    } finally {
      etcd.resume();
    }
  });

  test("with a large request waits for the first connection, and then for etcd to accept it", async () => {
    // Accepts connections, and never answers.
    const silent = createTcpServer();
    await once(silent.listen(0, "127.0.0.1"), "listening");
    const { port } = silent.address() as AddressInfo;
    onTestFinished(() => void silent.close());
    const urls = [`http://127.0.0.1:${port}`, (await etcdOf()).url];
    const { client, server, clock } = await bounded({}, ...urls);
    // Of a call that is for the first member while that can be reached. etcd ignores the field.
    const request = encode({ 99: Buffer.alloc(1_000_000) });
    const response = client.unary("/etcdserverpb.Maintenance/Status", request);
    // 64 KiB, and the window of a client that is not read from.
    await until(() => server.stats().requests.bytes >= 128 * 1024);
    clock.advance(3_000);
    expect(statusOf(await response).code).toBe("0");
  });

  test("that might not end by itself ends with UNAVAILABLE when the server shuts down", async () => {
    const { client, server, clock } = await bounded();
    const watch = client.open(watchPath);
    watch.send(watchOf("drained"));
    await watch.untilMessages(1);
    const drained = server.drain(1_000);
    const { code, message } = statusOf(await watch.response);
    expect([code, decodeURIComponent(message)]).toEqual(["14", "etcdserver: server stopped"]);
    client.close();
    clock.advance(1_000);
    await drained;
  });

  test("is one of many on few connections to etcd", async () => {
    const { client, api } = await bounded();
    const calls = Array.from({ length: 1_001 }, () => client.open(watchPath));
    for (const call of calls) call.send(watchOf("many"));
    await Promise.all(calls.map((call) => call.untilMessages(1)));
    expect(api.stats()).toMatchObject({ calls: 1_001, connections: 2 });
    for (const call of calls) call.cancel();
    await until(() => api.stats().connections === 1);
  });
});

describe("A response", () => {
  test("waits while its caller has got more than it may per second", async () => {
    const limits = { maxSendRatePerIdentity: 100_000 };
    const { client, server, clock } = await bounded({ limits });
    const put = encode({ 1: "paced", 2: Buffer.alloc(400_000) });
    await client.unary(putPath, put);
    let response: RawResponse | undefined;
    void client.unary(rangePath, encode({ 1: "paced" })).then((received) => {
      response = received;
    });
    await until(() => server.stats().callers.pacedStreams === 1);
    expect(response).toBeUndefined();
    // Time passes only while the response waits: without the rate it would arrive in no time.
    while (response === undefined) {
      if (server.stats().callers.pacedStreams === 1) clock.advance(100);
      await new Promise(setImmediate);
    }
    expect(response.body.length).toBeGreaterThan(400_000);
    expect(clock.now()).toBeGreaterThan(1_500);
  });
});

describe("Requests that etcd does not accept", () => {
  test("are held up to the bound of their connection, then the largest are refused", async () => {
    const limits = { maxUnreadBytesPerConnection: 400_000 };
    const { client, server, api } = await bounded({ limits });
    const calls = Array.from({ length: 10 }, () => client.open(watchPath));
    for (const call of calls) call.send(watchOf("held"));
    await Promise.all(calls.map((call) => call.untilMessages(1)));
    const etcd = await etcdOf();
    await etcd.pause();
    try {
      let most = 0;
      for (const call of calls) call.stream.write(Buffer.alloc(300_000));
      while (api.stats().calls === 10) {
        most = Math.max(most, server.stats().requests.bytes);
        await new Promise(setImmediate);
      }
      expect(most).toBeLessThanOrEqual(400_000);
      const ended = await Promise.race(calls.map((call) => call.response));
      expect(statusOf(ended).code).toBe("8");
    } finally {
      etcd.resume();
    }
    for (const call of calls) call.cancel();
    await until(() => api.stats().calls === 0 && server.stats().requests.bytes === 0);
  });
});

describe("Connections to etcd", () => {
  test("are as many as etcd's own bound of calls per connection needs, up to 256", async () => {
    const etcd = await startEtcd({ args: ["--max-concurrent-streams=1"] });
    onTestFinished(() => etcd.stop());
    const { client, api } = await bounded({}, etcd.url);
    const calls = Array.from({ length: 260 }, () => client.open(watchPath));
    for (const call of calls) call.send(watchOf("many"));
    const refused = await Promise.all(
      calls.slice(256).map(async ({ response }) => statusOf(await response).code),
    );
    expect(refused).toEqual(["14", "14", "14", "14"]);
    await Promise.all(calls.slice(0, 256).map((call) => call.untilMessages(1)));
    expect(api.stats()).toMatchObject({ calls: 256, connections: 256 });
  });
});

test("A member is at the port of its endpoint, also at that of http or https", () => {
  expect(
    ["http://a:80", "https://[::1]:443", "https://a:2379", "http://[::1]"].map(addressOf),
  ).toEqual([
    { host: "a", port: 80 },
    { host: "::1", port: 443 },
    { host: "a", port: 2379 },
    { host: "::1", port: 2379 },
  ]);
});

describe("A connection to etcd", () => {
  const connect = async (maxCallsEver?: number, keepalive: Keepalive = defaultKeepalive) => {
    const server = createServer();
    const clock = new ManualTimers();
    const sockets: Socket[] = [];
    server.on("connection", (socket: Socket) => sockets.push(socket));
    server.on("stream", (stream) => stream.respond({ ":status": 200 }, { endStream: true }));
    await once(server.listen(0, "127.0.0.1"), "listening");
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    let lost = 0;
    const opened: Socket[] = [];
    const owner = {
      endpoint: "",
      keepalive,
      isLeftOut: false,
      refused: () => {},
      isInUse: true,
      open: () => {
        const socket = netConnect(port, "127.0.0.1");
        opened.push(socket);
        return socket;
      },
      idle: () => {},
      lost: () => lost++,
    };
    owner.endpoint = `http://127.0.0.1:${port}`;
    const connection = await Http2Connection.connect(clock, owner, maxCallsEver);
    return { clock, connection, opened, sockets, lost: () => lost };
  };

  test("gets no further calls before HTTP/2 has no ids left for them, and ends those that it has", async () => {
    const { connection, lost } = await connect(2);
    const calls = [];
    while (connection.hasRoom) calls.push(connection.request({ ":path": "/" }));
    expect([calls.length, lost()]).toEqual([2, 1]);
    for (const call of calls) {
      call.end();
      await once(call.resume(), "close");
      expect(call.rstCode).toBe(0);
    }
  });

  test.each([true, false])(
    "without calls is checked by keepalive pings only if that is configured: %s",
    async (withoutCalls) => {
      const keepalive = { timeMs: 20_000, timeoutMs: 4_000, withoutCalls };
      const { clock, connection, sockets } = await connect(undefined, keepalive);
      // It answers nothing from now on.
      for (const socket of sockets) socket.pause();
      clock.advance(19_999);
      clock.advance(1);
      clock.advance(3_999);
      expect(connection.isUnresponsive).toBe(false);
      clock.advance(1);
      expect(connection.isUnresponsive).toBe(withoutCalls);
    },
  );

  test("with calls is checked at the configured interval", async () => {
    const keepalive = { timeMs: 20_000, timeoutMs: 4_000, withoutCalls: false };
    const { clock, connection, sockets } = await connect(undefined, keepalive);
    for (const socket of sockets) socket.pause();
    connection.request({ ":path": "/" });
    clock.advance(23_999);
    expect(connection.isUnresponsive).toBe(false);
    clock.advance(1);
    expect(connection.isUnresponsive).toBe(true);
  });

  test("has no room for a call from the moment on at which it is closed", async () => {
    const { connection, opened, sockets } = await connect();
    const [socket] = opened as [Socket];
    // By then Node.js has closed the session, which it announces later: a call would throw an error.
    const hadRoom = new Promise<boolean>((resolve) => {
      socket.once("close", () => resolve(connection.hasRoom));
    });
    for (const each of sockets) each.destroy();
    expect(await hadRoom).toBe(false);
  });
});

describe("What the relay learns of etcd", () => {
  test("is the header of unary responses, and the highest revision", async () => {
    const { client, api } = await bounded();
    const first = await client.unary(putPath, encode({ 1: "header", 2: "1" }));
    expect(statusOf(first).code).toBe("0");
    const { revision } = api.stats();
    expect(api.newestHeader).toMatchObject({ revision });
    expect(api.newestHeader?.clusterId).not.toBe(0n);
    expect(api.newestHeader?.memberId).not.toBe(0n);
    expect(api.newestHeader?.raftTerm).toBeGreaterThan(0);
    await client.unary(putPath, encode({ 1: "header", 2: "2" }));
    expect(api.stats().revision).toBe(revision + 1);
  });
});

const policy = (admins: string): string => `
roles:
  - name: everything
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: reader
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: [get, list, watch] }]
  - name: some
    rules: [{ resources: [pods], prefixes: ["*"], verbs: ["*"] }]
bindings:
  - { role: everything, subjects: [${admins}] }
  - { role: reader, subjects: [app] }
  - { role: some, subjects: [cid] }
`;

describe("With a policy", () => {
  const guarded = async (): Promise<
    Bounded & { authorizer: Authorizer; audited: AuditEntry[] }
  > => {
    const authorizer = new Authorizer(policyOf(policy("root")));
    const audited: AuditEntry[] = [];
    const audit = { level: "writes", record: (entry: AuditEntry) => void audited.push(entry) };
    const authenticators = authenticatorsOf(["root", "app", "cid"]);
    const options = { authorizer, authenticators, audit: audit as ServerOptions["audit"] };
    return { ...(await bounded(options)), authorizer, audited };
  };

  test.each(["app", "cid", undefined])(
    "a caller without every right (%s) is refused",
    async (who) => {
      const { client, audited } = await guarded();
      const metadata = who === undefined ? {} : { authorization: `Bearer ${who}` };
      for (const path of [rangePath, putPath, watchPath, "/etcdserverpb.KV/Future"]) {
        const refused = await client.unary(path, encode({ 1: "a" }), metadata);
        expect(statusOf(refused).code).toBe("7");
      }
      expect(audited.map(({ allowed, code }) => [allowed, code])).toEqual(
        Array(4).fill([false, "PERMISSION_DENIED"]),
      );
    },
  );

  test("etcd sees the metadata of a caller, but not its credential here", async () => {
    const seen: IncomingHttpHeaders[] = [];
    const upstream = createServer();
    upstream.on("stream", (stream, headers) => {
      seen.push({ ...headers });
      stream.respond({ ":status": 200, "grpc-status": "0" }, { endStream: true });
    });
    await once(upstream.listen(0, "127.0.0.1"), "listening");
    onTestFinished(() => void upstream.close());
    const { port } = upstream.address() as AddressInfo;
    const authenticators = authenticatorsOf(["root"]);
    const { client } = await bounded({ authenticators }, `http://127.0.0.1:${port}`);
    const metadata = { token: "t.1", hasleader: "true", "trace-bin": "AAE=", "grpc-timeout": "9S" };
    const own = { authorization: "Bearer root", "x-forwarded-client-cert": "Subject=x" };
    await client.unary(rangePath, encode({ 1: "a" }), { ...metadata, ...own });
    expect(seen).toMatchObject([
      { ...metadata, te: "trailers", ":authority": `127.0.0.1:${port}` },
    ]);
    expect(Object.keys(seen[0] ?? {})).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/^(authorization|x-forwarded-client-cert)$/)]),
    );
  });

  test("a caller with every right may call any method", async () => {
    const { client, audited } = await guarded();
    const metadata = { authorization: "Bearer root" };
    const response = await client.unary(putPath, encode({ 1: "a", 2: "b" }), metadata);
    expect(statusOf(response).code).toBe("0");
    await client.unary(rangePath, encode({ 1: "a" }), metadata);
    expect(audited).toMatchObject([
      { identity: { name: "root" }, method: "etcdserverpb.KV/Put", allowed: true },
    ]);
  });

  test("a caller that loses a right loses its open calls", async () => {
    const { client, authorizer } = await guarded();
    const call = client.open(watchPath, { authorization: "Bearer root" });
    call.send(watchOf("revoked"));
    await call.untilMessages(1);
    authorizer.replace(policyOf(policy("someone")));
    expect(statusOf(await call.response).code).toBe("7");
  });
});
