import { beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { encode } from "../foreign/protobuf.ts";
import { besideEtcdOfFile, revisionOf, watchesServedBy } from "./beside-etcd.ts";
import { type Front, until } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

/** The event window has the last few events only. */
const started = besideEtcdOfFile({
  resource: ["a=/a/"],
  "event-window-max-events": ["8"],
  "event-window-min-events": ["1"],
  "event-window-age": ["1s"],
});

let etcd: Etcd;
let front: Front;
let direct: RawGrpc;
let cached: RawGrpc;

beforeAll(async () => {
  ({ etcd, front, direct, cached } = await started());
});

async function put(key: string, value: string | Buffer, grpc: RawGrpc = direct): Promise<number> {
  return revisionOf(grpc, "/etcdserverpb.KV/Put", encode({ 1: key, 2: value }));
}

const servedBy = (what: string): Promise<number> => watchesServedBy(front, what);

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
