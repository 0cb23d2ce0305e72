import { expect, onTestFinished, test } from "vitest";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { encode, type Fields, Message } from "../foreign/protobuf.ts";
import { frontOfFile, metricOf, startFront, until, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient, type WatchResponse } from "./watch-client.ts";

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
  await untilReady(front);
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

// With the authentication that the test before has switched on.
test("A client with a token watches a cache if etcd permits it, with etcd's answers (etcd issues 16112, 19296)", async () => {
  const etcd = await etcdOf();
  const front = await startFront([etcd.url], {
    resource: ["a=/a/"],
    "etcd-username": ["root"],
    "etcd-password": ["password"],
    "watch-fanout-api": ["off"],
  });
  onTestFinished(() => front.stop());
  const direct = new RawGrpc(etcd.url);
  const client = new RawGrpc(front.url);
  const call = async (path: string, fields: Fields, token?: string): Promise<Message> => {
    const metadata = token === undefined ? {} : { token };
    const response = await direct.unary(`/etcdserverpb.${path}`, encode(fields), metadata);
    expect(statusOf(response).code).toBe("0");
    return new Message(response.body.subarray(5));
  };
  const root = (await call("Auth/Authenticate", { 1: "root", 2: "password" })).text(2);
  await call("Auth/RoleAdd", { 1: "reader" }, root);
  const permission = encode({ 1: 0, 2: "/a/ann/", 3: "/a/ann0" });
  await call("Auth/RoleGrantPermission", { 1: "reader", 2: permission }, root);
  await call("Auth/UserAdd", { 1: "ann", 2: "a" }, root);
  await call("Auth/UserGrantRole", { 1: "ann", 2: "reader" }, root);
  const token = (await call("Auth/Authenticate", { 1: "ann", 2: "a" })).text(2);
  await untilReady(front);
  const cached = (): Promise<number> => metricOf(front, "watch_fanout_etcd_api_watches", "cache");

  const streams = async (): Promise<number> => {
    const text = await (await fetch(`${etcd.url}/metrics`)).text();
    return Number(/^etcd_debugging_mvcc_watch_stream_total (\d+)/m.exec(text)?.[1]);
  };
  // A cache is ready before its watch is open, and this counts the streams of watches.
  await call("KV/Put", { 1: "/a/first" }, root);
  await until(async () => (await metricOf(front, "watch_fanout_events_received_total", "a")) > 0);
  const before = await streams();
  const answers: (readonly WatchResponse[])[] = [];
  const own = new WatchClient(client, { token });
  for (const watch of [own, new WatchClient(direct, { token })]) {
    watch.create({ 1: "/a/ann/", 2: "/a/ann0", 6: true });
    watch.create({ 1: "/a/", 2: "/a0" });
    watch.create({ 1: "/a/ann/1" });
    watch.create({ 1: "/a/ann/1", 2: "/a/ann/1" });
    watch.create({ 1: "/a/bob" });
    watch.create({ 1: "/a/ann/2", 4: true, 7: 9 });
    await watch.until(({ length }) => length === 6);
    watch.cancel(0);
    watch.create({ 1: "/a/ann/", 2: "/a/ann0", 6: true });
    await watch.until(({ length }) => length === 8);
    answers.push([...watch.responses]);
  }
  expect(answers[0]).toEqual(answers[1]);
  expect(answers[0]?.filter(({ reason }) => reason.includes("permission denied"))).toHaveLength(2);
  expect(await cached()).toBe(3);
  await call("KV/Put", { 1: "/a/bob", 2: "1" }, root);
  await call("KV/Put", { 1: "/a/ann/1", 2: "1" }, root);
  await own.until((responses) => responses.length === 10);
  expect(own.responses.slice(8).flatMap(({ events }) => events.map(({ kv }) => kv.key))).toEqual([
    "/a/ann/1",
    "/a/ann/1",
  ]);

  // The stream to etcd ends when nothing more is asked, and another begins with the next watch.
  // The two more are that of the client of etcd, and the one idle stream of the service.
  await until(async () => (await streams()) <= before + 2);
  own.create({ 1: "/a/bob" });
  own.create({ 1: "/a/ann/3" });
  await own.until((responses) => responses.length === 12);
  expect(own.responses.slice(10).map(({ canceled }) => canceled)).toEqual([true, false]);
  expect(await cached()).toBe(4);

  // Without a token, or with one that etcd does not know: etcd's own refusal. What a range is that begins with a permitted
  // key and has no end is etcd's to say, too: it is asked with the same bytes (GHSA-xg4h-6gfc-h4m8).
  for (const [metadata, rangeEnd] of [
    [{}, ""],
    [{ token: "none.1" }, ""],
    [{ token }, Buffer.of(0)],
  ] as const) {
    const both = [client, direct].map((grpc) => new WatchClient(grpc, metadata));
    for (const watch of both) {
      watch.create({ 1: "/a/ann/1", 2: rangeEnd });
      await watch.until(({ length }) => length === 1);
    }
    expect(both[0]?.responses).toEqual(both[1]?.responses);
    if (rangeEnd === "") expect(both[0]?.responses[0]).toMatchObject({ id: "-1", canceled: true });
  }
  expect(await cached()).toBe(4);
  direct.close();
  client.close();
});

// With the authentication and the user of the tests before.
test("A watch that etcd would refuse for several reasons is refused for its first one, and uses no id", async () => {
  const etcd = await etcdOf();
  const front = await startFront([etcd.url], {
    resource: ["a=/a/"],
    "etcd-username": ["root"],
    "etcd-password": ["password"],
    "watch-fanout-api": ["off"],
  });
  onTestFinished(() => front.stop());
  const [direct, client] = [new RawGrpc(etcd.url), new RawGrpc(front.url)];
  const login = encode({ 1: "ann", 2: "a" });
  const { body } = await direct.unary("/etcdserverpb.Auth/Authenticate", login);
  const token = new Message(body.subarray(5)).text(2);
  await untilReady(front);
  const creations: readonly Fields[] = [
    // Not permitted, and served by etcd. The ids of all that follow are those of etcd.
    { 1: "/c/bob" },
    { 1: "/a/ann/1" },
    { 1: "/a/ann/1", 7: 2 },
    { 1: "/c/bob" },
    { 1: "/a/bob" },
    { 1: "/a/ann/1", 7: 2 },
    // Not permitted, and
    { 1: "/a/bob", 7: 2 },
    { 1: "/c/bob", 7: 2 },
    { 1: "/a/bob", 2: "/a/bob" },
    { 1: "/a/bob", 3: 1 },
    // Empty, and with the id of another one
    { 1: "/a/ann/1", 2: "/a/ann/1", 7: 2 },
    { 1: "/a/ann/1", 2: "/a/ann/1" },
    { 1: "/a/ann/2" },
    { 1: "/c/bob" },
    { 1: "/a/ann/3" },
    { 1: "/a/ann/4", 7: 9 },
  ];
  const answers: (readonly WatchResponse[])[] = [];
  for (const watch of [new WatchClient(client, { token }), new WatchClient(direct, { token })]) {
    for (const creation of creations) watch.create(creation);
    await watch.until(({ length }) => length === creations.length);
    watch.cancel(2);
    watch.create({ 1: "/c/bob" });
    watch.create({ 1: "/a/ann/5" });
    await watch.until(({ length }) => length === creations.length + 3);
    answers.push([...watch.responses]);
  }
  expect(answers[0]).toEqual(answers[1]);
  const reasons = new Set(
    answers[0]?.map(({ reason }) => reason).filter((reason) => reason !== ""),
  );
  expect(reasons.size).toBe(3);
  // A negative revision comes first, as with etcd since 3.5.24 and 3.6.6; before, it was that of a watch of all events.
  const negative = new WatchClient(client, { token });
  for (const rangeEnd of ["", "/a/bob"]) negative.create({ 1: "/a/bob", 2: rangeEnd, 3: -1, 7: 2 });
  await negative.until(({ length }) => length === 2);
  for (const { reason } of negative.responses) expect(reason).toContain("compacted");
  direct.close();
  client.close();
});
