import { connect, type Socket } from "node:net";
import { type ConnectionOptions, connect as connectTls } from "node:tls";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { startAdmin } from "../../src/server/admin/admin.ts";
import { causeOf, HandshakeFailures } from "../../src/server/limits/handshake-failures.ts";
import { FakeClock } from "../fake-clock.ts";
import { Authority } from "../identity/authority.ts";
import { authority, serverCertificate } from "./authenticated-calls.ts";
import { Recorder, type Served, serveThings } from "./served.ts";

const resource = "things";
const hour = 3_600_000;
const alice = await authority.issue({ cn: "alice" });
const expired = await authority.issue({ cn: "alice", notAfter: new Date(Date.now() - hour / 2) });
const early = await authority.issue({ cn: "alice", notBefore: new Date(Date.now() + hour / 2) });
const foreign = await (await Authority.create("CN=Another authority")).issue({ cn: "alice" });

async function serveWith(tls?: object): Promise<Served & { readonly lines: Recorder }> {
  const lines = new Recorder();
  const logger = pino({ level: "warn" }, lines);
  const served = await serveThings({ server: { logger, ...(tls && { tls: tls as never }) } });
  return { ...served, lines };
}

const serveMutual = () =>
  serveWith({ ...serverCertificate, clientCa: authority.cert, clientAuth: "require" });

/** Resolves when the socket is closed, with its address as the server sees it. */
async function closed(socket: Socket): Promise<string> {
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => {}).resume();
  let address = "";
  socket.once("connect", () => {
    address = `127.0.0.1:${socket.localPort}`;
  });
  await new Promise((resolve) => socket.once("close", resolve));
  return address;
}

function tls({ server }: Served, options: ConnectionOptions): Promise<string> {
  const target = { port: server.port, host: "127.0.0.1", servername: "localhost" };
  return closed(connectTls({ ...target, ca: authority.cert, ALPNProtocols: ["h2"], ...options }));
}

function plain({ server }: Served, bytes: string): Promise<string> {
  const socket = connect(server.port, "127.0.0.1");
  socket.write(bytes);
  return closed(socket);
}

/** The causes with a count other than 0, once there is one. */
async function counted({ server }: Served): Promise<Record<string, number>> {
  for (;;) {
    const found = [...server.stats().handshakeFailures].filter(([, count]) => count > 0);
    if (found.length > 0) return Object.fromEntries(found);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

describe("A failed handshake is counted by its cause, and logged with its peer, if the client", () => {
  test.each<[string, string, (served: Served) => Promise<string>]>([
    ["sends HTTP/2 without TLS", "plain_text", (s) => plain(s, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")],
    ["sends HTTP/1 without TLS", "plain_text", (s) => plain(s, "GET / HTTP/1.1\r\n\r\n")],
    ["has no certificate", "no_certificate", (s) => tls(s, {})],
    [
      "has no certificate, with TLS 1.2",
      "no_certificate",
      (s) => tls(s, { maxVersion: "TLSv1.2" }),
    ],
    ["has a certificate that has expired", "expired_certificate", (s) => tls(s, expired)],
    ["has a certificate that is not valid yet", "expired_certificate", (s) => tls(s, early)],
    ["has a certificate of another CA", "unknown_ca", (s) => tls(s, foreign)],
    [
      "speaks only an old version of TLS",
      "protocol",
      (s) =>
        tls(s, {
          ...alice,
          maxVersion: "TLSv1.1",
          minVersion: "TLSv1.1",
          ciphers: "ALL@SECLEVEL=0",
        }),
    ],
    [
      "has no cipher in common",
      "protocol",
      (s) => tls(s, { ...alice, maxVersion: "TLSv1.2", ciphers: "AES128-SHA" }),
    ],
    ["speaks only HTTP/1.1", "protocol", (s) => tls(s, { ...alice, ALPNProtocols: ["http/1.1"] })],
    ["negotiates no protocol", "protocol", (s) => tls(s, { ...alice, ALPNProtocols: [] })],
  ])("%s", async (_what, cause, attempt) => {
    const served = await serveMutual();
    const peer = await attempt(served);
    expect(await counted(served)).toEqual({ [cause]: 1 });
    expect(served.lines.logged.map((line) => JSON.parse(line))).toMatchObject([
      { level: 40, port: "gRPC", cause, peer },
    ]);
  });

  test("sends a byte to a port without TLS, as probes do: no attack is logged or counted", async () => {
    const served = await serveWith();
    const peer = await plain(served, "\n");
    expect(await counted(served)).toEqual({ not_http2: 1 });
    expect([...served.server.stats().attacks.values()].filter((count) => count > 0)).toEqual([]);
    expect(served.lines.logged.map((line) => JSON.parse(line))).toMatchObject([
      { cause: "not_http2", peer, msg: "a client does not speak HTTP/2" },
    ]);
    expect((await served.client.list({ resource })).items).toEqual([]);
  });
});

test("A connection that is closed before its handshake is counted, and logged only at level debug", async () => {
  const served = await serveMutual();
  const socket = connect(served.server.port, "127.0.0.1", () => socket.destroy());
  await closed(socket);
  expect(await counted(served)).toEqual({ closed: 1 });
  expect(served.lines.logged).toEqual([]);
});

test("A failed handshake at the admin port is logged as one of that", async () => {
  const lines = new Recorder();
  const admin = await startAdmin({
    ...{ listen: { host: "127.0.0.1", port: 0 }, tls: serverCertificate, readiness: () => [] },
    metrics: { contentType: "text/plain", render: async () => "" },
    logger: pino({ level: "warn" }, lines),
  });
  onTestFinished(() => admin.close());
  const socket = connect(admin.port, "127.0.0.1");
  socket.write("GET /livez HTTP/1.1\r\n\r\n");
  const peer = await closed(socket);
  expect(lines.logged.map((line) => JSON.parse(line))).toMatchObject([
    { port: "admin", cause: "plain_text", peer },
  ]);
});

test("A client that names what it does not accept of the server's certificate is counted for that", () => {
  // As those of Go and OpenSSL do with an alert; Node.js' closes the connection.
  for (const alert of ["TLSV1_ALERT_UNKNOWN_CA", "SSL/TLS_ALERT_BAD_CERTIFICATE"]) {
    const error = Object.assign(new Error("alert"), { code: `ERR_SSL_${alert}` });
    expect(causeOf(error, null)).toBe("refused_certificate");
  }
  expect(causeOf(new Error("?"), null)).toBe("other");
  expect(causeOf(new Error("?"), "INVALID_PURPOSE")).toBe("other");
});

test("One line for each cause is written in a minute, with the number of the others", () => {
  const clock = new FakeClock();
  const lines: Record<string, unknown>[] = [];
  const logger = pino({}, { write: (line) => void lines.push(JSON.parse(line)) });
  const failures = new HandshakeFailures(clock, logger, "gRPC");
  for (let i = 0; i < 100; i++) failures.count("plain_text", `peer ${i}`);
  failures.count("unknown_ca", "another");
  expect(lines.map(({ cause, peer }) => [cause, peer])).toEqual([
    ["plain_text", "peer 0"],
    ["unknown_ca", "another"],
  ]);
  clock.advance(60_000);
  failures.count("plain_text", "peer 100");
  expect(lines.at(-1)).toMatchObject({ peer: "peer 100", suppressedOfCause: 99 });
  expect(failures.counts.get("plain_text")).toBe(101);
});
