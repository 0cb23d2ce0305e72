import { expect, test } from "vitest";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { frontOfFile, metricOf, startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

const etcdOf = etcdOfFile();
const frontOf = frontOfFile(async () =>
  startFront([(await etcdOf()).url], { resource: ["a=/a/"] }),
);

test("With etcd's authentication, etcd decides on each new watch (etcd issues 19033, 22065)", async () => {
  const etcd = await etcdOf();
  const front = await frontOf();
  const direct = new RawGrpc(etcd.url);
  const client = new RawGrpc(front.url);
  const call = async (path: string, fields: Fields, token?: string): Promise<Message> => {
    const metadata = token === undefined ? {} : { token };
    const response = await direct.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
    expect(statusOf(response).code).toBe("0");
    return new Message(response.body.subarray(5));
  };
  while (!(await fetch(`${front.admin}/readyz`)).ok) await new Promise(setImmediate);
  const before = new WatchClient(client);
  before.create({ 1: "/a/k" });
  await before.until(({ length }) => length === 1);
  expect(await metricOf(front, "watch_fanout_etcd_api_watches", "cache")).toBe(1);

  await call("Auth/UserAdd", { 1: "root", 2: "password" });
  await call("Auth/UserGrantRole", { 1: "root", 2: "root" });
  await call("Auth/AuthEnable", {});
  const token = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);

  // The service is not informed, and finds out within a second.
  let refused: WatchClient;
  do {
    refused = new WatchClient(client);
    refused.create({ 1: "/a/k" });
    await refused.until(({ length }) => length === 1);
  } while (refused.responses[0]?.canceled === false);
  const own = new WatchClient(direct);
  own.create({ 1: "/a/k" });
  await own.until(({ length }) => length === 1);
  expect(refused.responses[0]).toMatchObject({
    ...{ id: "-1", created: true, canceled: true },
    reason: own.responses[0]?.reason,
  });
  expect(own.responses[0]?.reason).not.toBe("");

  // The cache gets nothing more, so its watch ends; with etcd itself it would continue. Tokens are etcd's to check.
  const permitted = new WatchClient(client, { token });
  permitted.create({ 1: "/a/k" });
  await permitted.until(({ length }) => length === 1);
  await call("KV/Put", { 1: "/a/k" }, token);
  await permitted.until(() => permitted.eventsOf().length === 1);
  await before.until((responses) => responses.at(-1)?.canceled === true);
  expect(before.responses.at(-1)).toMatchObject({ id: "0", created: false, canceled: true });
  direct.close();
  client.close();
});
