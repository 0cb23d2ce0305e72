import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { type Front, frontOfFile, metricOf, startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

const etcdOf = etcdOfFile();
/** Its event window has the last few events only. */
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], {
    resource: ["a=/a/"],
    "event-window-max-events": ["8"],
    "event-window-min-events": ["1"],
    "event-window-age": ["1s"],
  }),
);

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let cached: RawGrpc;

beforeAll(async () => {
  etcd = await etcdOf();
  front = await frontOf();
  direct = new RawGrpc(etcd.url);
  cached = new RawGrpc(front.url);
  await until(async () => (await fetch(`${front.admin}/readyz`)).ok);
});

afterAll(() => {
  direct.close();
  cached.close();
});

async function put(key: string, value: string | Buffer, grpc: RawGrpc = direct): Promise<number> {
  const response = await grpc.unary("/etcdserverpb.KV/Put", encode({ 1: key, 2: value }));
  expect(statusOf(response).code).toBe("0");
  return new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
}

async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, 10));
}

const servedBy = (what: string): Promise<number> =>
  metricOf(front, "watch_fanout_etcd_api_watches", what);

const versionsOf = (client: WatchClient, id?: string): number[] =>
  client.eventsOf(id).map(({ kv }) => Number(kv.version));

const upTo = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

describe("What the cache does not have any more", () => {
  test("comes from etcd, and later events from the cache again", async () => {
    const first = await put("/a/old", "1");
    for (let i = 2; i <= 30; i++) await put("/a/old", String(i));
    const client = new WatchClient(cached);
    client.create({ 1: "/a/none" });
    client.create({ 1: "/a/old", 3: first, 7: 300 });
    client.create({ 1: "/a/", 2: "/a0", 3: first });
    await client.until(() => versionsOf(client, "300").length === 30);
    await until(async () => (await servedBy("etcd")) === 0);
    expect(await servedBy("cache")).toBe(3);
    await put("/a/old", "31", cached);
    await client.until(() => ["300", "1"].every((id) => versionsOf(client, id).length === 31));
    for (const id of ["300", "1"]) expect(versionsOf(client, id)).toEqual(upTo(31));
    expect(client.responses.filter(({ created }) => created).map(({ id }) => id)).toEqual([
      "0",
      "300",
      "1",
    ]);
    client.close();
  });

  test("comes to a client that was slow, while others are not delayed (etcd issue 10785)", async () => {
    const slowConnection = new RawGrpc(front.url);
    const slow = new WatchClient(slowConnection);
    const other = new WatchClient(cached);
    for (const client of [slow, other]) {
      client.create({ 1: "/a/slow" });
      await client.until(({ length }) => length === 1);
    }
    slow.call.stream.pause();
    const value = Buffer.alloc(50_000, "x");
    for (let i = 1; i <= 60; i++) {
      await put("/a/slow", value);
      await other.until(() => versionsOf(other).length === i);
    }
    expect(versionsOf(slow).length).toBeLessThan(60);
    slow.call.stream.resume();
    await slow.until(() => versionsOf(slow).length === 60);
    for (const client of [slow, other]) expect(versionsOf(client)).toEqual(upTo(60));
    await until(async () => (await servedBy("etcd")) === 0);
    await put("/a/slow", "last");
    await slow.until(() => versionsOf(slow).length === 61);
    other.close();
    slowConnection.close();
  });
});

describe("When etcd has another history", () => {
  test("watches end as after a compaction: clients list again", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/history" });
    await client.until(({ length }) => length === 1);
    const request = encode({ 1: "/watchfanout/history" });
    await direct.unary("/etcdserverpb.KV/DeleteRange", request);
    await client.until((responses) => responses.at(-1)?.canceled === true);
    expect(client.responses.at(-1)).toMatchObject({ id: "0", created: false, reason: "" });
    expect(client.responses.at(-1)?.compactRevision).toBeGreaterThan(0);
    // The stream continues.
    client.create({ 1: "/a/history" });
    await client.until((responses) => responses.at(-1)?.created === true);
    await put("/a/history", "1", cached);
    await client.until((responses) => responses.at(-1)?.events.length === 1);
    client.close();
  });
});

describe("When etcd is restarted", () => {
  test("cached watches continue, others end with UNAVAILABLE, and hasleader ends after a while", async () => {
    const plain = new WatchClient(cached);
    const relayed = new WatchClient(cached);
    const leader = new WatchClient(cached, { hasleader: "true" });
    for (const client of [plain, relayed, leader]) {
      client.create({ 1: "/a/restart" });
      await client.until(({ length }) => length === 1);
    }
    relayed.create({ 1: "/elsewhere" });
    await relayed.until(({ length }) => length === 2);

    await etcd.kill();

    // A living stream does not outlive its upstream (etcd issues 21813, 18231).
    expect(statusOf(await relayed.call.response).code).toBe("14");
    const ended = statusOf(await leader.call.response);
    expect([ended.code, decodeURIComponent(ended.message)]).toEqual([
      "14",
      "etcdserver: no leader",
    ]);
    // A new stream is refused at once, as nothing is known of a leader.
    const refused = new WatchClient(cached, { hasleader: "true" });
    refused.create({ 1: "/a/restart" });
    expect(statusOf(await refused.call.response).code).toBe("14");

    await etcd.start();
    const again = new RawGrpc(etcd.url);
    await put("/a/restart", "1", again);
    again.close();
    await plain.until(() => plain.eventsOf().length === 1);
    const later = new WatchClient(cached, { hasleader: "true" });
    later.create({ 1: "/a/restart" });
    await later.until(({ length }) => length === 1);
    later.close();
    plain.close();
  });
});

describe("When the service stops", () => {
  test("streams end with UNAVAILABLE, after which clients resume them", async () => {
    const client = new WatchClient(cached);
    client.create({ 1: "/a/stop" });
    await client.until(({ length }) => length === 1);
    await front.stop();
    const ended = statusOf(await client.call.response);
    expect([ended.code, decodeURIComponent(ended.message)]).toEqual([
      "14",
      "etcdserver: server stopped",
    ]);
  });
});
