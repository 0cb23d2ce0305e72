import type { OutgoingHttpHeaders } from "node:http2";
import { pino } from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { EtcdApi } from "../../../src/etcd-api/etcd-api.ts";
import { Authorizer } from "../../../src/policy/authorizer.ts";
import { SendBudget } from "../../../src/server/limits/send-budget.ts";
import type { AuditEntry, RunningServer, ServerOptions } from "../../../src/server/server.ts";
import { policyOf } from "../../config/parsed-policy.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { authenticatorsOf, headersOf } from "../../server/rights/callers.ts";
import { type Recorder, serve } from "../../server/served.ts";
import { connectTo, requestOf, sessionOf, watchByHttp1, watchByHttp2 } from "./http.ts";

const etcdOf = etcdOfFile();

interface Bounded {
  readonly clock: ManualTimers;
  readonly api: EtcdApi;
  readonly server: RunningServer;
  readonly recorder: Recorder;
  readonly url: string;
  readonly address: string;
}

/** A server with the etcd API alone, on a clock that the test advances. */
async function bounded(options: Partial<ServerOptions> = {}): Promise<Bounded> {
  const clock = new ManualTimers();
  const logger = pino({ level: "silent" });
  const endpoints = [(await etcdOf()).url];
  const api = new EtcdApi({
    ...{ endpoints, tls: undefined, progressIntervalMs: 600_000, clock, logger },
  });
  onTestFinished(() => api.close());
  const { server, recorder } = await serve(new Map(), clock, { ...options, rawServices: api });
  const address = `127.0.0.1:${server.port}`;
  return { clock, api, server, recorder, address, url: `http://${address}` };
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise(setImmediate);
}

/** Lets seconds pass, each with a call, so that the connection to etcd is not idle. */
async function pass({ clock, url }: Bounded, seconds: number): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    clock.advance(1_000);
    await (await fetch(`${url}/v3/kv/range`, { method: "POST", body: `{"key":"YQ=="}` })).text();
  }
}

/**
 * Lets seconds pass until a response is unsent, and no more of it arrives. What is held of one until it is JSON counts as
 * well, and changes while it arrives.
 */
async function untilStuck(bound: Bounded, before?: () => Promise<unknown>): Promise<void> {
  let unsent = 0;
  for (let unchanged = 0; unchanged < 10; ) {
    if (unsent === 0) await before?.();
    await pass(bound, 1);
    const { bytes } = bound.server.stats().unsent;
    unchanged = bytes > 0 && bytes === unsent ? unchanged + 1 : 0;
    unsent = bytes;
  }
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const putOf = (key: string, value: string): string =>
  requestOf("/v3/kv/put", JSON.stringify({ key: base64(key), value: base64(value) }));
const rangeOf = (key: string): string =>
  requestOf("/v3/kv/range", JSON.stringify({ key: base64(key) }));
const watchOf = (key: string): string => `{"create_request":{"key":"${base64(key)}"}}`;

function statusByHttp2(
  url: string,
  headers: OutgoingHttpHeaders,
  body: string,
): Promise<number | undefined> {
  const stream = sessionOf(url).request({ ":method": "POST", ...headers });
  stream.end(body);
  return new Promise((resolve) =>
    stream.on("response", (received) => resolve(received[":status"])),
  );
}

describe("A request", () => {
  test.each(["/v3/kv/range?a=b", "/v3beta/kv/range?", "http://example.com/v3/kv/range"])(
    "is one of the gateway: %s",
    async (target) => {
      const { address, url } = await bounded();
      const connection = connectTo(address, requestOf(target, '{"key":"YQ=="}'));
      expect(await connection.until(/\r\n\r\n/)).toMatch(/^HTTP\/1.1 200/);
      const path = target.replace(/^http:..[^/]*/, "");
      expect(await statusByHttp2(url, { ":path": path }, '{"key":"YQ=="}')).toBe(200);
    },
  );
});

describe("A connection with HTTP/1.1", () => {
  test("has its requests handled in their order, however they arrive", async () => {
    const { address } = await bounded();
    const text = ["1", "2", "3"].map((value) => putOf("piped", value) + rangeOf("piped")).join("");
    const connection = connectTo(address, text.slice(0, 100));
    connection.socket.write(text.slice(100));
    const received = await connection.until(/("count":"1".*){3}/s);
    const values = [...received.matchAll(/"value":"(.*?)"/g)].map(([, value]) => value);
    expect(values).toEqual(["1", "2", "3"].map(base64));
  });

  test("with too many requests ahead of their responses is closed", async () => {
    const { address, server, api } = await bounded();
    const watch = requestOf("/v3/watch", watchOf("a"));
    const connection = connectTo(address, watch + rangeOf("a").repeat(32));
    await connection.until(/"created":true/);
    expect(server.connections).toBe(1);
    connection.socket.write(rangeOf("a"));
    await connection.closed;
    await until(() => server.connections === 0 && api.stats().calls === 0);
  });

  test("counts what it has read of requests ahead of their responses, until it closes", async () => {
    const { address, server, api } = await bounded();
    const put = requestOf("/v3/kv/put", `{"value":"${"A".repeat(40_000)}"}`);
    const chunked = "POST /v3/kv/put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    const watch = requestOf("/v3/watch", watchOf("a"));
    const connection = connectTo(address, watch + put.repeat(2) + chunked);
    await until(() => server.stats().requests.bytes > 2 * 40_000 + 64 * 1024);
    expect(server.stats().requests.bytes).toBeLessThan(150_000);
    connection.socket.destroy();
    await until(() => server.stats().requests.bytes === 0 && api.stats().calls === 0);
  });

  test("with more read of such requests than it may have held is closed", async () => {
    const limits = { maxUnreadBytes: 1_000_000, maxUnreadBytesPerConnection: 60_000 };
    const { address, server, api } = await bounded({ limits });
    const put = requestOf("/v3/kv/put", `{"value":"${"A".repeat(40_000)}"}`);
    const connection = connectTo(address, requestOf("/v3/watch", watchOf("a")) + put.repeat(2));
    await connection.closed;
    await until(() => server.stats().requests.bytes === 0 && api.stats().calls === 0);
  });

  test("does not handle what comes behind a response that closes it", async () => {
    const pages = new Map([["/page", async () => ({ status: 200, body: "page" })]]);
    const { address, url, recorder } = await bounded({ pages });
    const page = "GET /page HTTP/1.1\r\nHost: a\r\n\r\n";
    const connection = connectTo(address, page + putOf("behind", "1"));
    await connection.closed;
    expect(connection.received()).toMatch(/connection: close.*page$/is);
    const body = JSON.stringify({ key: base64("behind") });
    const read = await fetch(`${url}/v3/kv/range`, { method: "POST", body });
    expect(await read.json()).not.toHaveProperty("kvs");
    await recorder.untilEnded(1);
    expect(recorder.calls.map(({ method }) => method)).toEqual(["etcdserverpb.KV/Range"]);
  });

  test("is closed when the headers of its first request do not arrive", async () => {
    const { address, clock, server } = await bounded();
    const connection = connectTo(address, "POST /v3/kv/range HTTP/1.1\r\nHost: a\r\n");
    await until(() => server.connections === 1);
    clock.advance(30_000);
    await connection.closed;
  });

  test("is closed when those of the next one do not arrive within two minutes", async () => {
    const { address, clock, server } = await bounded();
    const connection = connectTo(address, `${rangeOf("a")}POST /v3/kv/range HTTP/1.1\r\n`);
    await connection.until(/"header"/);
    clock.advance(119_000);
    await new Promise(setImmediate);
    expect(server.connections).toBe(1);
    clock.advance(2_000);
    await connection.closed;
  });

  test("with half a body gets 504 after a minute, and is closed", async () => {
    const { address, clock, api, server } = await bounded();
    const connection = connectTo(address, rangeOf("half").slice(0, -3));
    await until(() => api.stats().calls === 1);
    clock.advance(61_000);
    await connection.closed;
    expect(connection.received()).toMatch(/^HTTP\/1\.1 504 .*connection: close/is);
    expect(connection.received()).toContain("The request did not arrive within 60 s");
    await until(() => api.stats().calls === 0 && server.stats().requests.bytes === 0);
  });

  test("counts what it holds of a body, and refuses one beyond 3 MiB", async () => {
    const { address, api, server } = await bounded();
    const text = requestOf("/v3/kv/put", `{"value":"${"A".repeat(4 * 1024 ** 2)}"}`);
    const connection = connectTo(address, text.slice(0, 1024 ** 2));
    await until(() => server.stats().requests.bytes >= 1024 ** 2);
    connection.socket.write(text.slice(1024 ** 2));
    await connection.closed;
    expect(connection.received()).toMatch(/^HTTP\/1\.1 429 .*received message larger than max/s);
    await until(() => api.stats().calls === 0 && server.stats().requests.bytes === 0);
  });

  test.each([
    ["a put", requestOf("/v3/kv/put", `{"value":"${"A".repeat(2 * 1024 ** 2)}"}`)],
    [
      "a watch",
      requestOf("/v3/watch", `{"create_request":{"key":"${"A".repeat(2 * 1024 ** 2)}"}}`),
    ],
  ])("holds nothing of %s whose client is gone within its body", async (_, text) => {
    const { address, api, server } = await bounded();
    const connection = connectTo(address, text.slice(0, 1024 ** 2));
    await until(() => server.stats().requests.bytes >= 1024 ** 2);
    connection.socket.destroy();
    await until(() => api.stats().calls === 0 && server.stats().requests.bytes === 0);
  });

  test("refuses JSON of very many values before it is parsed", async () => {
    const { url } = await bounded();
    const txnOf = (count: number): string => `{"compare":[${Array(count).fill("{}").join(",")}]}`;
    const refusals: string[] = [];
    for (const count of [4_900, 5_100]) {
      const response = await fetch(`${url}/v3/kv/txn`, { method: "POST", body: txnOf(count) });
      expect(response.status).toBe(400);
      refusals.push(((await response.json()) as { message: string }).message);
    }
    expect(refusals).toEqual([
      "etcdserver: too many operations in txn request",
      "the request has more than 10000 values",
    ]);
  });

  test("makes room for others when there are too many", async () => {
    const { address, server } = await bounded({ limits: { maxConnections: 2 } });
    const connections = [1, 2].map(() => connectTo(address, rangeOf("a")));
    await Promise.all(connections.map((connection) => connection.until(/"header"/)));
    const third = connectTo(address, rangeOf("a"));
    await third.until(/"header"/);
    await Promise.race(connections.map((connection) => connection.closed));
    expect(server.connections).toBe(2);
  });

  test("whose client reads nothing of a watch is closed after the stall timeout", async () => {
    const bound = await bounded();
    const { address, api, server } = bound;
    const connection = connectTo(address, requestOf("/v3/watch", watchOf("stalled")));
    await connection.until(/"created":true/);
    connection.socket.pause();
    const value = base64("x".repeat(1_000_000));
    const body = JSON.stringify({ key: base64("stalled"), value });
    const { url } = await etcdOf();
    await untilStuck(bound, () => fetch(`${url}/v3/kv/put`, { method: "POST", body }));
    await pass(bound, 61);
    connection.socket.resume();
    await connection.closed;
    await until(() => api.stats().calls === 0);
    expect(server.stats()).toMatchObject({ slowCalls: 1, unsent: { bytes: 0 } });
  });

  test("gets results of operations up to 2 MiB each, which count as unsent while they are held", async () => {
    const { url, server } = await bounded();
    const value = base64("x".repeat(1_000_000));
    for (let index = 0; index < 3; index++) {
      const body = JSON.stringify({ key: base64(`part${index}`), value });
      await fetch(`${url}/v3/kv/put`, { method: "POST", body });
    }
    const txnOf = async (end: string): Promise<Response> => {
      const read = { request_range: { key: base64("part"), range_end: base64(end) } };
      const body = JSON.stringify({ success: [read, read] });
      return fetch(`${url}/v3/kv/txn`, { method: "POST", body });
    };
    let unsent = 0;
    const { settle } = SendBudget.prototype;
    vi.spyOn(SendBudget.prototype, "settle").mockImplementation(function (this: SendBudget, of) {
      settle.call(this, of);
      unsent = Math.max(unsent, server.stats().unsent.bytes);
    });
    const allowed = await txnOf("part2");
    const { responses } = (await allowed.json()) as {
      responses: { response_range: { kvs: unknown[] } }[];
    };
    expect(responses.map(({ response_range: { kvs } }) => kvs.length)).toEqual([2, 2]);
    expect(unsent).toBeGreaterThan(1_000_000);
    const refused = await txnOf("part3");
    expect(refused.status).toBe(429);
    expect(await refused.json()).toMatchObject({
      code: 8,
      message:
        "a part of the response has more than 2 MiB, which the JSON gateway does not hold: use gRPC",
    });
    await until(() => server.stats().unsent.bytes === 0);
  });

  test("whose client reads nothing of a large response is closed, too", async () => {
    const bound = await bounded();
    const { address, api, server } = bound;
    const { url } = await etcdOf();
    for (let index = 0; index < 12; index++) {
      const value = base64("x".repeat(1_000_000));
      const body = JSON.stringify({ key: base64(`large${index}`), value });
      await fetch(`${url}/v3/kv/put`, { method: "POST", body });
    }
    const all = { key: base64("large"), range_end: base64("largf") };
    const body = JSON.stringify(all);
    const whole = await fetch(`http://${address}/v3/kv/range`, { method: "POST", body });
    expect(((await whole.json()) as { kvs: unknown[] }).kvs).toHaveLength(12);
    const text = requestOf("/v3/kv/range", body);
    const connection = connectTo(address, text);
    connection.socket.pause();
    await until(() => api.stats().calls === 1);
    await untilStuck(bound);
    // One piece of it, not all.
    expect(server.stats().unsent.bytes).toBeLessThan(2_000_000);
    await pass(bound, 61);
    await until(() => api.stats().calls === 0);
    connection.socket.resume();
    await connection.closed;
    expect(connection.received()).not.toContain(`"count":"12"`);
  });
});

describe("When the server shuts down", () => {
  test.each([
    ["HTTP/1.1", watchByHttp1],
    ["HTTP/2", watchByHttp2],
  ])("a watch by %s ends with an error that has a status of its own", async (_, watch) => {
    const { url, server, clock } = await bounded();
    const messages = await watch(url, watchOf("drained"));
    expect((await messages.next()).result?.created).toBe(true);
    const drained = server.drain(1_000);
    expect((await messages.next()).error).toEqual({
      ...{ grpc_code: 14, code: 14, http_code: 503, http_status: "Service Unavailable" },
      message: "etcdserver: server stopped",
    });
    await expect(messages.next()).rejects.toThrow("has ended");
    await messages.cancel();
    clock.advance(1_000);
    await drained;
  });

  test("a connection of HTTP/1.1 without a request is closed at once", async () => {
    const { address, server } = await bounded();
    const connection = connectTo(address, rangeOf("a"));
    await connection.until(/"header"/);
    const drained = server.drain(1_000);
    await connection.closed;
    await drained;
  });
});

describe("A page of another origin", () => {
  test.each(["HTTP/1.1", "HTTP/2"])("has no request by %s handled", async (protocol) => {
    const { url } = await bounded();
    const key = base64(`page ${protocol}`);
    const body = JSON.stringify({ key, value: "" });
    const headers = { origin: "http://example.com", "content-type": "text/plain" };
    const path = "/v3/kv/put";
    const refused =
      protocol === "HTTP/1.1"
        ? (await fetch(url + path, { method: "POST", body, headers })).status
        : await statusByHttp2(url, { ":path": path, ...headers }, body);
    expect(refused).toBe(403);
    const read = await fetch(`${url}/v3/kv/range`, { method: "POST", body: `{"key":"${key}"}` });
    expect(await read.json()).not.toHaveProperty("kvs");
  });
});

describe("Rights and limits", () => {
  const policy = (admin: string): string => `
roles:
  - name: everything
    rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }]
  - name: some
    rules: [{ resources: [things], prefixes: ["*"], verbs: ["*"] }]
bindings:
  - { role: everything, subjects: [${admin}] }
  - { role: some, subjects: [bob] }
`;

  async function restricted(): Promise<Bounded & { readonly audited: AuditEntry[] }> {
    const audited: AuditEntry[] = [];
    const started = await bounded({
      authenticators: authenticatorsOf(["ann", "bob"]),
      authorizer: new Authorizer(policyOf(policy("ann"))),
      audit: { level: "all", record: (entry) => audited.push(entry) },
    });
    return { ...started, audited };
  }

  test.each([
    ["an identity with every right", headersOf("ann"), 200, undefined],
    ["another identity", headersOf("bob"), 403, 7],
    ["an unknown token", { authorization: "Bearer wrong" }, 401, 16],
  ])("are those of gRPC: %s", async (_, headers, status, code) => {
    const { url, audited, recorder } = await restricted();
    const body = JSON.stringify({ key: base64("a") });
    const own = await fetch(`${url}/v3/kv/range`, { method: "POST", body, headers });
    expect(own.status).toBe(status);
    const response = (await own.json()) as object;
    if (code === undefined) expect(response).toHaveProperty("header");
    else expect(response).toMatchObject({ code, error: expect.any(String) });
    const byHttp2 = await statusByHttp2(url, { ":path": "/v3/kv/range", ...headers }, body);
    expect(byHttp2).toBe(status);
    await recorder.untilEnded(2);
    expect(recorder.calls[0]?.method).toBe("etcdserverpb.KV/Range");
    expect(recorder.calls[0]).toEqual(recorder.calls[1]);
    expect(audited.map(({ method }) => method)).toEqual(Array(2).fill("etcdserverpb.KV/Range"));
  });

  test("a watch ends when its identity loses its right", async () => {
    const authorizer = new Authorizer(policyOf(policy("ann")));
    const { address } = await bounded({
      authenticators: authenticatorsOf(["ann"]),
      authorizer,
    });
    const { authorization = "" } = headersOf("ann");
    const headers = [`Authorization: ${authorization}`];
    const connection = connectTo(address, requestOf("/v3/watch", watchOf("a"), headers));
    await connection.until(/"created":true/);
    authorizer.replace(policyOf(policy("eve")));
    expect(await connection.until(/"error"/)).toContain(`"grpc_code":7,"http_code":403`);
  });

  test("open streams beyond their number are refused with 503", async () => {
    const { url } = await bounded({ limits: { maxStreams: 1 } });
    const messages = await watchByHttp1(url, watchOf("a"));
    await messages.next();
    const refused = await watchByHttp2(url, watchOf("a"));
    expect(refused.status).toBe(503);
    expect((await refused.next()).error?.message).toContain("--max-streams");
  });
});
