import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { type Front, frontOfFile, metricOf, startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient, type WatchResponse } from "./watch-client.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], {
    resource: ["a=/a/", "b=/b/"],
    "watch-progress-notify-interval": ["200ms"],
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

/** Writes to etcd, and returns the revision. */
async function put(key: string | Buffer, value = "v", fields: Fields = {}): Promise<number> {
  return revisionOf("/etcdserverpb.KV/Put", encode({ 1: key, 2: value, ...fields }));
}

async function remove(key: string, rangeEnd = ""): Promise<number> {
  return revisionOf("/etcdserverpb.KV/DeleteRange", encode({ 1: key, 2: rangeEnd }));
}

async function revisionOf(path: string, request: Buffer): Promise<number> {
  const response = await direct.unary(path, request);
  expect(statusOf(response).code).toBe("0");
  return new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
}

async function until(condition: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await condition())) await new Promise(setImmediate);
}

const servedBy = (what: string): Promise<number> =>
  metricOf(front, "watch_fanout_etcd_api_watches", what);

/** Runs a script on a stream of etcd and on one of the service, and returns what both received. */
async function both(
  script: (client: WatchClient) => Promise<void>,
): Promise<readonly [own: readonly WatchResponse[], etcds: readonly WatchResponse[]]> {
  const results: (readonly WatchResponse[])[] = [];
  for (const grpc of [cached, direct]) {
    const client = new WatchClient(grpc);
    await script(client);
    results.push([...client.responses]);
    client.close();
  }
  return results as [readonly WatchResponse[], readonly WatchResponse[]];
}

describe("A cached watch", () => {
  test("smoke", async () => {
    await put("/a/x", "1");
    const client = new WatchClient(cached);
    client.create({ 1: "/a/", 2: "/a0", 6: true });
    await client.until((responses) => responses.length >= 1);
    expect(await servedBy("cache")).toBe(1);
    const revision = await put("/a/x", "2");
    await client.until((responses) => responses.length >= 2);
    const end = await remove("/a/x");
    await client.until((responses) => responses.length >= 3);
    console.log(revision, end, JSON.stringify(client.responses, null, 1));
    await client.untilProgress(end);
    client.close();
  });

  test("refusals", async () => {
    const start = await put("/a/r", "1");
    const [own, other] = await both(async (client) => {
      client.create({ 1: "/a/r", 7: 5 });
      client.create({ 1: "/a/r", 7: 5 });
      client.create({ 1: "/a/r", 2: "/a/q" });
      client.create({ 1: "/a/r", 2: "/a/r" });
      client.create({ 1: "/a/r" });
      client.create({ 1: "/a/r", 3: start });
      client.create({ 1: "/a/r", 7: -7 });
      client.create({ 1: "/a/r", 3: 2n ** 63n - 1n });
      client.create({ 1: "/c/", 2: "/c0" });
      client.create({ 2: Buffer.of(0) });
      await client.until((responses) => responses.length >= 11);
      client.cancel(99);
      client.cancel(5);
      await client.until((responses) => responses.length >= 12);
      client.call.send(Buffer.from([0x22, 0x00]));
      client.call.send(Buffer.of());
      client.create({ 1: "/a/r", 7: 5 });
      await client.until((responses) => responses.length >= 13);
    });
    expect(own).toEqual(other);
  });
});
