import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { Relay } from "../../faults/relay.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { type Front, frontOfFile, metricOf, startFront } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const restoredOf = etcdOfFile();
/** To etcd, and to another one after that is restored. */
let relay: Relay;
const frontOf = frontOfFile(async () => {
  relay = await Relay.to(portOf((await etcdOf()).url));
  return startFront([relay.url], { resource: ["cached=/c/"] });
});
const portOf = (url: string): number => Number(new URL(url).port);

const rangePath = "/etcdserverpb.KV/Range";
const linearizable = encode({ 1: "/c/a" });
const serializable = encode({ 1: "/c/a", 7: true });

let front: Front;
let client: RawGrpc;

const cachedCount = (): Promise<number> =>
  metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache");

async function call(path: string, fields: Fields, token?: string): Promise<Message> {
  const metadata = token === undefined ? {} : { token };
  const response = await client.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
  expect(statusOf(response).code).toBe("0");
  return new Message(response.body.subarray(5));
}

beforeAll(async () => {
  front = await frontOf();
  client = new RawGrpc(front.url);
  await call("KV/Put", { 1: "/c/a", 2: "secret" });
  while ((await cachedCount()) < 2) {
    await client.unary(rangePath, serializable);
    await client.unary(rangePath, linearizable);
  }
});

afterAll(async () => {
  client.close();
  await relay.close();
});

describe("When etcd's authentication is switched on", () => {
  test("nothing that was cached without a user is served to clients without a token", async () => {
    await call("Auth/UserAdd", { 1: "root", 2: "password" });
    await call("Auth/UserGrantRole", { 1: "root", 2: "root" });
    await client.unary(rangePath, serializable);
    await call("Auth/AuthEnable", {});
    const count = await cachedCount();
    for (const request of [serializable, linearizable]) {
      const response = await client.unary(rangePath, request);
      expect(statusOf(response)).toEqual({
        code: "3",
        message: "etcdserver: user name is empty",
      });
    }
    expect(await cachedCount()).toBe(count);
  });

  test("clients with a token get what etcd permits", async () => {
    const token = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);
    const found = await call("KV/Range", { 1: "/c/a", 7: true }, token);
    expect(found.messages(2).map((kv) => kv.text(5))).toEqual(["secret"]);
    const count = await cachedCount();
    const refused = await client.unary(rangePath, serializable, { token: "none.1" });
    expect(statusOf(refused).code).toBe("16");
    expect(await cachedCount()).toBe(count);
  });

  test("the caches serve again when it is switched off", async () => {
    const token = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);
    await call("Auth/AuthDisable", {}, token);
    const count = await cachedCount();
    while ((await cachedCount()) < count + 2) {
      await client.unary(rangePath, serializable);
      await client.unary(rangePath, linearizable);
    }
  });
});

test("After a restore of etcd to an older revision the caches serve the new history", async () => {
  const revisionOf = (answer: Message): number => answer.message(1)?.number(3) ?? 0;
  for (let i = 0; i < 10; i++) await call("KV/Put", { 1: "/c/a", 2: "old" });
  expect(revisionOf(await call("KV/Range", { 1: "/c/a" }))).toBeGreaterThan(10);
  const restored = new RawGrpc((await restoredOf()).url);
  await restored.unary("/etcdserverpb.KV/Put", encode({ 1: "/c/a", 2: "restored" }));
  restored.close();
  relay.aimAt(portOf((await restoredOf()).url));
  relay.cut();
  // A serializable read may still be of the old history, until one that is not has been answered.
  for (const request of [linearizable, serializable]) {
    const count = await cachedCount();
    while ((await cachedCount()) === count) {
      const response = await client.unary(rangePath, request);
      if (statusOf(response).code !== "0") continue;
      const answer = new Message(response.body.subarray(5));
      expect(answer.messages(2).map((kv) => kv.text(5))).toEqual(["restored"]);
      expect(revisionOf(answer)).toBeLessThan(10);
    }
  }
});

test("A Range fails at once while etcd is away, as with etcd itself", async () => {
  await (await restoredOf()).stop();
  for (const request of [serializable, linearizable]) {
    const response = await client.unary(rangePath, request);
    // A serializable read that etcd has allowed within the last second is served.
    if (request === serializable && statusOf(response).code === "0") continue;
    expect(statusOf(response).code).toBe("14");
  }
});
