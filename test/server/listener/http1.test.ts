import { readFileSync } from "node:fs";
import { get as httpsGet } from "node:https";
import { createConnection, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { credentials } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Http1Page, Http1Pages } from "../../../src/server/listener/http1.ts";
import { authority, serverCertificate } from "../authenticated-calls.ts";
import { type Served, serveThings } from "../served.ts";
import { TestClient } from "../test-client.ts";

const certificates = new URL("../../config/certificates/", import.meta.url);
const cert = readFileSync(new URL("cert.pem", certificates));
const key = readFileSync(new URL("key.pem", certificates));

const pages: Http1Pages = new Map<string, (query: string) => Promise<Http1Page>>([
  ["/health", async () => ({ status: 200, body: "fine\n", contentType: "text/plain" })],
  ["/late", () => new Promise(() => {})],
  ["/broken", () => Promise.reject(new Error("no page"))],
  ["/impossible", async () => ({ status: 99, body: "" })],
  ["/query", async (query) => ({ status: 200, body: query })],
]);

const serve = (options: NonNullable<Parameters<typeof serveThings>[0]>["server"] = {}) =>
  serveThings({ server: { pages, ...options } });

/** Sends these parts, each when the one before has been accepted. */
function send(
  port: number,
  ...parts: (string | Buffer)[]
): { socket: Socket; all: Promise<string> } {
  const socket = createConnection({ port, host: "127.0.0.1" });
  onTestFinished(() => void socket.destroy());
  return { socket, all: exchange(socket, parts) };
}

/** Resolves with all that was received when the connection is closed. */
async function exchange(socket: Socket, parts: readonly (string | Buffer)[]): Promise<string> {
  let received = "";
  socket.setNoDelay(true).on("error", () => {});
  socket.setEncoding("latin1").on("data", (text: string) => {
    received += text;
  });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  for (const part of parts) {
    await new Promise((resolve) => socket.write(part, resolve));
    // The next part is a packet of its own.
    await new Promise(setImmediate);
  }
  await closed;
  return received;
}

const request = (path: string, method: string = "GET"): string =>
  `${method} ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;

async function untilClosed({ server, client }: Served): Promise<void> {
  client.close();
  while (server.connections > 0) await new Promise(setImmediate);
}

describe("A server with pages for HTTP/1", () => {
  test("answers them on the port of gRPC, and closes the connection", async () => {
    const served = await serve();
    const port = served.server.port;
    const response = await send(port, request("/health?verbose")).all;
    expect(response).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(response).toMatch(/\r\nconnection: close\r\n/i);
    expect(response).toMatch(/\r\n\r\nfine\n$/);
    expect((await served.client.list({ resource: "things" })).items).toEqual([]);
    await untilClosed(served);
  });

  test("distinguishes the protocols whatever the first packets are", async () => {
    const { server } = await serve();
    const text = request("/health");
    expect(await send(server.port, ...text).all).toMatch(/^HTTP\/1\.1 200 OK/);
    for (const method of ["POST", "PROPFIND", "P"]) {
      const [first = "", ...others] = request("/health", method);
      expect(await send(server.port, first, others.join("")).all).toMatch(/^HTTP\/1\.1 40[05] /);
    }
    const preface = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const settings = Buffer.from("000000040000000000", "hex");
    const goAway = Buffer.from("0000080700000000000000000000000000", "hex");
    const parts = [...preface].map((byte) => Buffer.of(byte));
    // The answer begins with SETTINGS, and the connection ends as the client has asked.
    const bytes = Buffer.from(await send(server.port, ...parts, settings, goAway).all, "latin1");
    expect(bytes[3]).toBe(4);
  });

  test("says for other paths and methods what there is", async () => {
    const { server, recorder } = await serve();
    const other = await send(server.port, request("/")).all;
    expect(other).toMatch(/^HTTP\/1\.1 404 /);
    expect(other).toContain("This port serves gRPC");
    const post = await send(server.port, request("/health", "POST")).all;
    expect(post).toMatch(/^HTTP\/1\.1 405 .*\r\nallow: GET, HEAD\r\n/is);
    const head = await send(server.port, request("/health", "HEAD")).all;
    expect(head).toMatch(/^HTTP\/1\.1 200 .*content-length: 5\r\n.*\r\n\r\n$/is);
    expect(await send(server.port, request("/broken")).all).toMatch(/^HTTP\/1\.1 500 /);
    expect(recorder.logged).toHaveLength(1);
    expect(await send(server.port, request("/impossible")).all).toBe("");
    expect(recorder.logged).toHaveLength(2);
  });

  test.each([
    ["the form for proxies", "GET http://a.example/health HTTP/1.1\r\nHost: a\r\n\r\n"],
    ["an expectation", "GET /health HTTP/1.1\r\nHost: a\r\nExpect: much\r\n\r\n"],
    [
      "an upgrade to another protocol",
      "GET /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    ],
    ["HTTP/1.0", "GET /health HTTP/1.0\r\n\r\n"],
  ])("answers a request with %s", async (_name, text) => {
    const served = await serve();
    expect(await send(served.server.port, text).all).toMatch(/^HTTP\/1\.1 200 .*fine\n$/s);
    await untilClosed(served);
  });

  test("passes on the query, and connects to nothing", async () => {
    const served = await serve();
    const { port } = served.server;
    expect(await send(port, request("/query?a=b&c")).all).toMatch(/\r\n\r\na=b&c$/);
    expect(await send(port, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n").all).toBe("");
    await untilClosed(served);
  });

  test("answers a client that closes its direction behind the request", async () => {
    const served = await serve();
    const { socket, all } = send(served.server.port);
    socket.end(request("/health"));
    expect(await all).toMatch(/^HTTP\/1\.1 200 OK.*fine\n$/s);
    await untilClosed(served);
  });

  test("answers the first of several requests only", async () => {
    const served = await serve();
    for (const count of [2, 1000]) {
      const responses = await send(served.server.port, request("/health").repeat(count)).all;
      expect(responses.match(/HTTP\/1\.1 \d+/g)).toEqual(["HTTP/1.1 200"]);
    }
    await untilClosed(served);
  });

  test("stops reading requests while the first is answered", async () => {
    const served = await serve({ limits: { handshakeMs: 1_000 } });
    const { socket, all } = send(served.server.port, request("/late"));
    let isAccepted: boolean | undefined;
    socket.write(request("/late").repeat(1_000_000), (error) => {
      isAccepted = !error;
    });
    // More turns than it takes to read all of it.
    for (let turn = 0; turn < 2_000; turn++) await new Promise(setImmediate);
    await served.clock.elapse(1_200);
    expect(await all).toBe("");
    expect(isAccepted).toBe(false);
    await untilClosed(served);
  });

  test("counts their connections among the others, and ends them when it shuts down", async () => {
    const served = await serve({ limits: { maxConnections: 2 } });
    const { port } = served.server;
    const first = send(port, request("/late"));
    while (served.server.connections < 1) await new Promise(setImmediate);
    const second = send(port, request("/late"));
    while (served.server.connections < 2) await new Promise(setImmediate);
    // A further one replaces the oldest of its host.
    const third = send(port, request("/late"));
    expect(await first.all).toBe("");
    while (served.server.connections < 2) await new Promise(setImmediate);
    served.client.close();
    const drained = served.server.drain(60_000);
    await served.clock.elapse(2_000);
    await drained;
    expect(await Promise.all([second.all, third.all])).toEqual(["", ""]);
  });

  test("closes connections that send too little, or too much, or get no page in time", async () => {
    const served = await serve({ limits: { handshakeMs: 1_000 } });
    const port = served.server.port;
    const tooMuch = `GET /health HTTP/1.1\r\nA: ${"a".repeat(20_000)}\r\n\r\n`;
    expect(await send(port, tooMuch).all).toMatch(/^HTTP\/1\.1 431 /);
    const slow = [
      send(port),
      send(port, "P"),
      send(port, "PR"),
      send(port, "GET /"),
      send(port, request("/late")),
    ];
    while (served.server.connections < slow.length) await new Promise(setImmediate);
    await served.clock.elapse(1_200);
    expect(await Promise.all(slow.map(({ all }) => all))).toEqual(slow.map(() => ""));
    await untilClosed(served);
  });

  test("survives clients that close or reset before the first bytes of a protocol", async () => {
    const served = await serve();
    for (const parts of [[], ["P"], ["GET"]]) {
      const ended = send(served.server.port, ...parts);
      ended.socket.once("connect", () => ended.socket.end());
      await ended.all;
      const reset = send(served.server.port, ...parts);
      reset.socket.once("connect", () => reset.socket.resetAndDestroy());
      await reset.all;
    }
    await untilClosed(served);
  });

  test("does all that with TLS as well, with and without ALPN", async () => {
    const served = await serve({ tls: { cert, key } });
    const port = served.server.port;
    const channel = credentials.createSsl(cert);
    const client = new TestClient(port, channel);
    expect((await client.list({ resource: "things" })).items).toEqual([]);
    client.close();
    const body = await new Promise((resolve, reject) => {
      httpsGet({ port, host: "localhost", path: "/health", ca: cert, agent: false }, (response) => {
        response.setEncoding("utf8").on("data", resolve);
      }).on("error", reject);
    });
    expect(body).toBe("fine\n");
    const plain = connectTls({ port, host: "localhost", ca: cert });
    onTestFinished(() => void plain.destroy());
    expect(await exchange(plain, [request("/health")])).toMatch(/^HTTP\/1\.1 200 OK/);
    await untilClosed(served);
  });
});

test("The pages need a client certificate where calls need one", async () => {
  const { server } = await serve({
    tls: { cert: serverCertificate.cert, key: serverCertificate.key, clientCa: authority.cert },
  });
  const options = { port: server.port, host: "localhost", ca: authority.cert };
  const none = connectTls(options);
  onTestFinished(() => void none.destroy());
  expect(await exchange(none, [request("/health")])).toBe("");
  const known = connectTls({ ...options, ...(await authority.issue({ cn: "alice" })) });
  onTestFinished(() => void known.destroy());
  expect(await exchange(known, [request("/health")])).toMatch(/^HTTP\/1\.1 200 OK/);
});

test("Without pages a server speaks HTTP/2 alone", async () => {
  const { server } = await serveThings();
  const bytes = Buffer.from(await send(server.port, request("/health")).all, "latin1");
  // SETTINGS, which HTTP/2 begins with.
  expect(bytes[3]).toBe(4);
  const { server: secure } = await serveThings({ server: { tls: { cert, key } } });
  const options = { port: secure.port, host: "localhost", ca: cert, ALPNProtocols: ["http/1.1"] };
  const socket = connectTls(options);
  onTestFinished(() => void socket.destroy());
  expect(await exchange(socket, [])).toBe("");
});
