import { once } from "node:events";
import { createServer, type Server } from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test } from "vitest";
import { EtcdPages } from "../../src/etcd-api/etcd-pages.ts";
import { startEtcd } from "../etcd/etcd.ts";
import { FakeClock } from "../fake-clock.ts";
import { encode } from "../foreign/protobuf.ts";
import { startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

/** A member that answers each request by HTTP with this; undefined: not at all. */
async function pagesOf(answer: string | undefined) {
  const asked: string[] = [];
  const member = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", (bytes: Buffer) => {
      asked.push(bytes.toString("latin1").split("\r\n", 1)[0] ?? "");
      if (answer !== undefined) socket.end(answer);
    });
    onTestFinished(() => void socket.destroy());
  });
  const endpoint = `http://127.0.0.1:${await listening(member)}`;
  const leader = { confirmed: 0, failure: undefined as Error | undefined };
  const forwarding = { failure: undefined as Error | undefined };
  const clock = new FakeClock();
  const logged: string[] = [];
  const logger = pino({ level: "info" }, { write: (line: string) => void logged.push(line) });
  const source = {
    ...{ endpoint, certificates: undefined },
    confirmLeader: async () => {
      leader.confirmed++;
      if (leader.failure !== undefined) throw leader.failure;
    },
    confirmForwarding: async () => {
      if (forwarding.failure !== undefined) throw forwarding.failure;
    },
  };
  const byPath = new EtcdPages(source, { clock, logger }).ofClientPort(true);
  const page = async (path: string, query = "") => {
    const make = byPath.get(path);
    if (make === undefined) throw new Error(`no page ${path}`);
    return await make(query);
  };
  return { page, asked, leader, forwarding, clock, logged };
}

async function listening(server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => void server.close());
  const address = server.address();
  return typeof address === "object" ? (address?.port ?? 0) : 0;
}

const ok = (body: string, status = "200 OK"): string =>
  `HTTP/1.1 ${status}\r\nContent-Length: ${body.length}\r\nContent-Type: text/x\r\n\r\n${body}`;

describe("The pages of etcd", () => {
  test("are what the member in use responds, healthy or not", async () => {
    for (const status of [200, 503]) {
      const { page, logged } = await pagesOf(ok("as it is", `${status} Any`));
      const own = { status, body: "as it is", contentType: "text/x" };
      expect(await page("/health")).toEqual(own);
      expect(await page("/version")).toEqual(own);
      expect(logged).toEqual([]);
    }
  });

  test.each([
    ["nothing", ""],
    ["no HTTP", "\0\0\x06\x04\0\0\0\0\0\0\x05\0\0\x40\0"],
    [
      "another protocol",
      "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: Upgrade\r\n\r\n",
    ],
    ["a part of a page", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"],
    ["too much", ok("a".repeat(70_000))],
    ["no such page", ok("", "404 Not Found")],
    ["an invalid status", ok("", "099 Odd")],
    ["a page elsewhere", "HTTP/1.1 302 Found\r\nLocation: /else\r\nContent-Length: 0\r\n\r\n"],
  ])("are made without its HTTP port, if that answers with %s", async (_name, answer) => {
    const { page, leader, clock, logged } = await pagesOf(answer);
    expect(await page("/health")).toMatchObject({
      status: 200,
      body: '{"health":"true","reason":""}\n',
    });
    expect(leader.confirmed).toBe(1);
    expect((await page("/version")).status).toBe(503);
    expect(logged).toHaveLength(1);
    leader.failure = new Error("127.0.0.1:1: no leader");
    clock.advance(1_000);
    const failed = await page("/health");
    expect(failed.status).toBe(503);
    expect(JSON.parse(failed.body)).toMatchObject({ health: "false" });
    // The page needs no credential; the reason is in the log.
    expect(failed.body).not.toContain("no leader");
    expect(logged.at(-1)).toContain("127.0.0.1:1: no leader");
    clock.advance(1_000);
    await page("/health");
    expect(logged).toHaveLength(2);
  });

  test("are of this service at /proxy/health: whether reads can be passed on, whatever the member says", async () => {
    const { page, asked, leader, forwarding, clock, logged } = await pagesOf(ok("as it is"));
    expect(await page("/proxy/health")).toMatchObject({
      ...{ status: 200, body: '{"health":"true","reason":""}\n' },
      contentType: "application/json",
    });
    expect([asked.length, leader.confirmed]).toEqual([0, 0]);
    forwarding.failure = new Error("127.0.0.1:1: a read failed");
    clock.advance(500);
    const failed = await page("/proxy/health");
    expect([failed.status, failed.contentType]).toEqual([503, "application/json"]);
    expect(JSON.parse(failed.body)).toMatchObject({ health: "false" });
    expect(failed.body).not.toContain("a read failed");
    expect(logged.at(-1)).toContain("127.0.0.1:1: a read failed");
  });

  test("may be larger if they are metrics, up to 4 MiB", async () => {
    const metrics = "a".repeat(4 * 1024 ** 2);
    expect((await (await pagesOf(ok(metrics))).page("/metrics")).body).toHaveLength(metrics.length);
    expect((await (await pagesOf(ok(`${metrics}a`))).page("/metrics")).status).toBe(503);
  });

  test("fail in time if the member does not respond", async () => {
    const { page, asked, clock, leader } = await pagesOf(undefined);
    const pages = [page("/health"), page("/version")];
    while (asked.length < 2) await new Promise(setImmediate);
    clock.advance(3_000);
    expect((await Promise.all(pages)).map(({ status }) => status)).toEqual([503, 503]);
    expect(clock.pendingTimers).toBe(0);
    // A member that has stopped may still count as one that has a leader.
    await new Promise(setImmediate);
    expect(leader.confirmed).toBe(0);
  });

  test("are requested once for all requests at about the same time", async () => {
    const { page, asked, clock } = await pagesOf(ok("a"));
    await Promise.all(Array.from({ length: 100 }, () => page("/health")));
    expect(asked).toHaveLength(1);
    clock.advance(499);
    await page("/health");
    expect(asked).toHaveLength(1);
    clock.advance(1);
    await page("/health");
    expect(asked).toHaveLength(2);
  });

  test("get what etcd knows of a query, in one order, so that few are kept", async () => {
    const { page, asked } = await pagesOf(ok("a"));
    for (let i = 0; i < 100; i++) await page("/health", `a=${i}&serializable=maybe&exclude=${i}`);
    await page("/health", "serializable=true&exclude=NOSPACE&exclude=CORRUPT&exclude=NOSPACE");
    await page("/health", "exclude=CORRUPT&exclude=NOSPACE&serializable=true&x");
    await page("/version", "a=b");
    expect(asked).toEqual([
      "GET /health HTTP/1.1",
      "GET /health?exclude=CORRUPT&exclude=NOSPACE&serializable=true HTTP/1.1",
      "GET /version HTTP/1.1",
    ]);
  });

  test("show the alarms of a real etcd, except those that a query leaves out", async () => {
    const etcd = await startEtcd();
    onTestFinished(() => etcd.stop());
    const client = new RawGrpc(etcd.url);
    const alarm = await client.unary("/etcdserverpb.Maintenance/Alarm", encode({ 1: 1, 3: 1 }));
    expect(statusOf(alarm).code).toBe("0");
    client.close();
    const front = await startFront([etcd.url]);
    onTestFinished(() => front.stop());
    const health = async (query: string) => {
      const response = await fetch(`${front.url}/health${query}`);
      return [response.status, await response.json()];
    };
    expect(await health("")).toEqual([503, { health: "false", reason: "ALARM NOSPACE" }]);
    expect(await health("?exclude=NOSPACE")).toEqual([200, { health: "true", reason: "" }]);
    const admin = await fetch(`${front.admin}/health?exclude=NOSPACE`, { method: "HEAD" });
    expect(admin.status).toBe(200);
    const posted = await fetch(`${front.admin}/health`, { method: "POST" });
    expect(posted.status).toBe(405);
  });

  test("say that an etcd is healthy that serves HTTP elsewhere", async () => {
    const etcd = await startEtcd({ args: ["--listen-client-http-urls=unix://pages"] });
    onTestFinished(() => etcd.stop());
    const front = await startFront([etcd.url]);
    onTestFinished(() => front.stop());
    const healthy = await fetch(`${front.url}/health`);
    expect([healthy.status, await healthy.json()]).toEqual([200, { health: "true", reason: "" }]);
    expect((await fetch(`${front.url}/version`)).status).toBe(503);
    await etcd.kill();
    let failed = await fetch(`${front.url}/health`);
    while (failed.ok) failed = await fetch(`${front.url}/health`);
    expect(await failed.json()).toMatchObject({ health: "false" });
  });
});
