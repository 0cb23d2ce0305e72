import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { type Front, startFront, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

const etcdOf = etcdOfFile();
const user = {
  ...{ resource: ["a=/a/"], "etcd-username": ["root"], "etcd-password": ["password"] },
};

/** An etcd with authentication. */
beforeAll(async () => {
  const direct = new RawGrpc((await etcdOf()).url);
  for (const [path, fields] of [
    ["UserAdd", { 1: "root", 2: "password" }],
    ["UserGrantRole", { 1: "root", 2: "root" }],
    ["AuthEnable", {}],
  ] satisfies [string, Fields][]) {
    const response = await direct.unary(`/etcdserverpb.Auth/${path}`, encode(fields));
    expect(statusOf(response).code).toBe("0");
  }
  direct.close();
});

test("Beside etcd's API with a user of etcd a service does not start without a policy", async () => {
  await expect(startFront([(await etcdOf()).url], user)).rejects.toThrow(
    'every caller of ListWatchService and WriteService would have the rights of "root" in etcd',
  );
});

describe("With --watch-fanout-api off", () => {
  let front: Front;
  let client: RawGrpc;
  beforeAll(async () => {
    front = await startFront([(await etcdOf()).url], { ...user, "watch-fanout-api": ["off"] });
    client = new RawGrpc(front.url);
    await untilReady(front);
  });
  afterAll(async () => {
    client?.close();
    await front?.stop();
  });

  test.each([
    ["ListWatchService/Get", { 1: "a", 2: "k" }],
    ["ListWatchService/List", { 1: "a" }],
    ["ListWatchService/Watch", { 1: "a" }],
    ["ListWatchService/Resources", {}],
    ["WriteService/Put", { 1: "a", 2: "k", 3: "v" }],
    ["WriteService/Delete", { 1: "a", 2: "k" }],
  ])("%s is not served", async (method, fields) => {
    const response = await client.unary(`/watchfanout.v1.${method}`, encode(fields));
    expect(statusOf(response).code).toBe("12");
  });

  test("health does not know the services, and reflection does not list them", async () => {
    const check = async (service: string): Promise<string> =>
      statusOf(await client.unary("/grpc.health.v1.Health/Check", encode({ 1: service }))).code;
    expect(await check("")).toBe("0");
    expect(await check("watchfanout.v1.ListWatchService")).toBe("5");
    expect(await check("watchfanout.v1.WriteService")).toBe("5");
    const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
    const { body } = await client.unary(path, encode({ 7: "" }));
    const listed = new Message(body.subarray(5)).message(6)?.messages(1) ?? [];
    expect(listed.map((service) => service.text(1)).sort()).toEqual([
      "grpc.health.v1.Health",
      "grpc.reflection.v1.ServerReflection",
      "grpc.reflection.v1alpha.ServerReflection",
    ]);
  });

  test("etcd's API is served with the rights of its clients", async () => {
    const put = encode({ 1: "/a/k", 2: "v" });
    const denied = await client.unary("/etcdserverpb.KV/Put", put);
    expect(decodeURIComponent(statusOf(denied).message)).toContain("user name is empty");
    const authenticate = encode({ 1: "root", 2: "password" });
    const response = await client.unary("/etcdserverpb.Auth/Authenticate", authenticate);
    const token = new Message(response.body.subarray(5)).text(2);
    expect(statusOf(await client.unary("/etcdserverpb.KV/Put", put, { token })).code).toBe("0");
  });
});
