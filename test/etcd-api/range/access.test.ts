import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Etcd } from "../../etcd/etcd.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../../foreign/protobuf.ts";
import { type Front, frontOfFile, metricOf, startFront } from "../front.ts";
import { RawGrpc, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], { resource: ["cached=/c/"] }),
);

const rangePath = "/etcdserverpb.KV/Range";
const linearizable = encode({ 1: "/c/a" });
const serializable = encode({ 1: "/c/a", 7: true });

let etcd: Etcd;
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
  etcd = await etcdOf();
  front = await frontOf();
  client = new RawGrpc(front.url);
  await call("KV/Put", { 1: "/c/a", 2: "secret" });
  while ((await cachedCount()) < 2) {
    await client.unary(rangePath, serializable);
    await client.unary(rangePath, linearizable);
  }
});

afterAll(() => client.close());

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

  test("clients with a token are answered by etcd", async () => {
    const token = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);
    const count = await cachedCount();
    const found = await call("KV/Range", { 1: "/c/a", 7: true }, token);
    expect(found.messages(2).map((kv) => kv.text(5))).toEqual(["secret"]);
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

test("A Range fails at once while etcd is away, as with etcd itself", async () => {
  await etcd.stop();
  for (const request of [serializable, linearizable]) {
    const response = await client.unary(rangePath, request);
    // A serializable read that etcd has allowed within the last second is served.
    if (request === serializable && statusOf(response).code === "0") continue;
    expect(statusOf(response).code).toBe("14");
  }
});
