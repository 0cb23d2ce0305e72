import { afterEach, describe, expect, test } from "vitest";
import { watchesServedBy } from "../etcd-api/beside-etcd.ts";
import { startEmbedded, startRelay, untilReady } from "../etcd-api/front.ts";
import { RawGrpc, statusOf } from "../etcd-api/raw-grpc.ts";
import { WatchClient } from "../etcd-api/watch-client.ts";
import { encode, Message } from "../foreign/protobuf.ts";

const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

function clientOf(url: string): RawGrpc {
  const client = new RawGrpc(url);
  closing.push(() => client.close());
  return client;
}

async function get(client: RawGrpc, key: string): Promise<Message> {
  const response = await client.unary("/etcdserverpb.KV/Range", encode({ 1: key }));
  expect(statusOf(response)).toEqual({ code: "0", message: "" });
  return new Message(response.body.subarray(5));
}

describe("A service with etcd's API over the embedded store", () => {
  test("serves watches and reads of its resources from their caches, as with etcd", async () => {
    const front = await startEmbedded({ resource: ["a=/a/", "b=/b/"] });
    closing.push(() => front.stop());
    await untilReady(front);
    const client = clientOf(front.url);
    const watch = new WatchClient(client);
    watch.create({ 1: "/a/", 2: "/a0" });
    watch.create({ 1: "/c/", 2: "/c0" });
    await watch.until((responses) => responses.length === 2);
    expect(await watchesServedBy(front, "cache")).toBe(1);
    expect(await watchesServedBy(front, "etcd")).toBe(1);
    for (const key of ["/a/1", "/c/1"]) {
      await client.unary("/etcdserverpb.KV/Put", encode({ 1: key, 2: key }));
      expect((await get(client, key)).messages(2)[0]?.text(5)).toBe(key);
    }
    await watch.until(() => watch.eventsOf("0").length + watch.eventsOf("1").length === 2);
  });

  test("is followed by relays, which know its history", async () => {
    const front = await startEmbedded({ resource: ["a=/a/"] });
    closing.push(() => front.stop());
    await untilReady(front);
    const relay = await startRelay([front.address]);
    closing.push(() => relay.stop());
    await untilReady(relay);
    const [root, leaf] = [clientOf(front.url), clientOf(relay.url)];
    const watch = new WatchClient(leaf);
    watch.create({ 1: "/a/", 2: "/a0" });
    await watch.until((responses) => responses.length === 1);
    await leaf.unary("/etcdserverpb.KV/Put", encode({ 1: "/a/1", 2: "v" }));
    await watch.until(() => watch.eventsOf().length === 1);
    expect((await get(leaf, "/a/1")).messages(2)[0]?.text(5)).toBe("v");
    const ids = [root, leaf].map(async (client) =>
      (await get(client, "/watchfanout/history")).messages(2)[0]?.text(5),
    );
    const [its, own] = await Promise.all(ids);
    expect(its).toMatch(/^[0-9a-f-]{36}$/);
    expect(own).toBe(its);
  });
});
