import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { revisionOf } from "./beside-etcd.ts";
import { type Front, metricOf, startFront, startRelay, untilReady } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";
import { WatchClient } from "./watch-client.ts";

const range = "/etcdserverpb.KV/Range";
const put = "/etcdserverpb.KV/Put";

describe("etcd's API at a root, a relay, and a relay of that", () => {
  let etcd: Etcd;
  const fronts: Front[] = [];
  /** Of etcd, the root, the relay, and its relay. */
  const clients: RawGrpc[] = [];

  beforeAll(async () => {
    etcd = await startEtcd();
    const root = await startFront([etcd.url], { resource: ["a=/a/"] });
    fronts.push(root);
    for (let depth = 1; depth <= 2; depth++) {
      const next = fronts.at(-1) as Front;
      fronts.push(await startRelay([next.address]));
    }
    for (const front of fronts) await untilReady(front);
    clients.push(...[etcd, ...fronts].map(({ url }) => new RawGrpc(url)));
  });

  afterAll(async () => {
    for (const client of clients) client.close();
    for (const front of fronts.reverse()) await front.stop();
    await etcd?.stop();
  });

  test("gives each client what it has written at once, with etcd's header", async () => {
    for (const [at, client] of clients.entries()) {
      const key = `/a/${at}`;
      const revision = await revisionOf(client, put, encode({ 1: key, 2: "v" }));
      const bodies = await Promise.all(
        clients.map(async (each) => {
          const response = await each.unary(range, encode({ 1: key }));
          expect(statusOf(response).code).toBe("0");
          return response.body.toString("hex");
        }),
      );
      expect(new Set(bodies).size).toBe(1);
      const body = new Message(Buffer.from(bodies[0] ?? "", "hex").subarray(5));
      expect(body.message(1)?.number(3)).toBe(revision);
    }
    for (const front of fronts) {
      expect(await metricOf(front, "watch_fanout_etcd_api_ranges_total", "cache")).toBeGreaterThan(
        0,
      );
    }
  });

  test("serves watches of any tier from its cache", async () => {
    const watches = clients.map((client) => new WatchClient(client));
    for (const watch of watches) {
      watch.create({ 1: "/a/", 2: "/a0", 6: true });
      await watch.until(([created]) => created?.created === true);
    }
    const [, root] = clients as [RawGrpc, RawGrpc];
    for (let i = 0; i < 10; i++) await revisionOf(root, put, encode({ 1: "/a/w", 2: String(i) }));
    const revision = await revisionOf(root, "/etcdserverpb.KV/DeleteRange", encode({ 1: "/a/w" }));
    for (const watch of watches) await watch.untilProgress(revision);
    const [expected, ...others] = watches.map((watch) => watch.eventsOf());
    expect(expected).toHaveLength(11);
    for (const other of others) expect(other).toEqual(expected);
    const headers = watches.map(({ responses }) => responses.map(({ header }) => header.join()));
    expect(new Set(headers.flat()).size).toBe(1);
    for (const front of fronts) {
      expect(await metricOf(front, "watch_fanout_etcd_api_watches", "etcd")).toBe(0);
    }
    for (const watch of watches) watch.close();
  });
});
