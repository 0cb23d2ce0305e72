import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { pino } from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { EtcdApi } from "../../../src/etcd-api/etcd-api.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { startReady } from "../../cacher/ready.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { encode, Message } from "../../foreign/protobuf.ts";
import { ManualTimers } from "../../server/limits/manual-timers.ts";
import { serve } from "../../server/served.ts";
import { clientOf } from "../../storage/etcd/source.ts";
import { RawGrpc, type RawResponse, statusOf } from "../raw-grpc.ts";

const etcdOf = etcdOfFile();
const prefix = "/compaction/";
const rangeEnd = "/compaction0";

/** A cached resource of the etcd at this URL, and a client of etcd itself. */
async function served(url: string) {
  const etcd = await etcdOf();
  const direct = new RawGrpc(etcd.url);
  await put(direct, "0");
  const etcdClient = clientOf({ url });
  const storage = new EtcdStorage(etcdClient, { prefix });
  const logger = pino({ level: "silent" });
  const cacher = new Cacher({ storage, rawKeys: true, clock: systemClock, logger, name: "c" });
  await startReady(cacher);
  const clock = new ManualTimers();
  const options = { tls: undefined, progressIntervalMs: 600_000, clock, logger };
  const api = new EtcdApi({ endpoints: [url], ...options });
  api.serve([{ name: "c", keys: { prefix: Buffer.from(prefix) }, cacher, storage }]);
  const { server } = await serve(new Map(), clock, { rawServices: api });
  const client = new RawGrpc(`http://127.0.0.1:${server.port}`);
  onTestFinished(async () => {
    client.close();
    direct.close();
    api.close();
    await cacher.close();
    await etcdClient.close();
  });
  // The first response brings the ids of the cluster.
  await client.unary("/etcdserverpb.KV/Range", encode({ 1: "other" }));
  return { direct, client, storage, api };
}

/** The revision in the header of a response. */
function revisionOf(response: RawResponse): number {
  expect(statusOf(response).code).toBe("0");
  return new Message(response.body.subarray(5)).message(1)?.number(3) ?? 0;
}

async function put(client: RawGrpc, name: string): Promise<number> {
  const request = encode({ 1: `${prefix}${name}`, 2: "value" });
  return revisionOf(await client.unary("/etcdserverpb.KV/Put", request));
}

/** Returns the store's revision at the compaction. */
async function compact(client: RawGrpc, revision: number): Promise<number> {
  return revisionOf(await client.unary("/etcdserverpb.KV/Compact", encode({ 1: revision })));
}

const read = (client: RawGrpc, revision: number) =>
  client.unary("/etcdserverpb.KV/Range", encode({ 1: prefix, 2: rangeEnd, 4: revision }));

/** Resolves when the cache has what was written: a read is passed on to etcd if that takes long. */
async function untilCached(client: RawGrpc, api: EtcdApi): Promise<void> {
  const { cached } = api.stats().ranges;
  while (api.stats().ranges.cached === cached)
    revisionOf(await client.unary("/etcdserverpb.KV/Range", encode({ 1: `${prefix}0` })));
}

/** Passes everything on after a delay, in each direction. Returns the URL. */
async function delayed(url: string, delayMs: number): Promise<string> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  const proxy = createServer({ noDelay: true }, (client) => {
    const upstream = connect({ host: hostname, port: Number(port), noDelay: true });
    for (const [from, to] of [[client, upstream] as const, [upstream, client] as const]) {
      sockets.add(from);
      from.on("data", (bytes) => setTimeout(() => to.write(bytes), delayMs));
      from.on("error", () => {}).on("close", () => to.destroy());
    }
  });
  await once(proxy.listen(0, "127.0.0.1"), "listening");
  onTestFinished(() => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
}

describe("A Range at an old revision is linearizable with compaction", () => {
  test("its header is of a state in which the revision was not compacted", async () => {
    const { direct, client, storage, api } = await served((await etcdOf()).url);
    const old = await put(direct, "a");
    await put(direct, "b");
    await untilCached(client, api);
    // Both are done when etcd has answered whether it has the revision, and before it is asked for its newest one.
    let compactedAt = 0;
    const { currentRevisionWith } = storage;
    vi.spyOn(storage, "currentRevisionWith").mockImplementationOnce(async (...args) => {
      const current = await currentRevisionWith.apply(storage, args);
      compactedAt = await compact(direct, await put(direct, "c"));
      await put(direct, "d");
      return current;
    });
    const { cached } = api.stats().ranges;
    const revision = revisionOf(await read(client, old));
    expect(api.stats().ranges.cached).toBe(cached + 1);
    expect(revision).toBeGreaterThan(old);
    expect(revision).toBeLessThan(compactedAt);
    expect(statusOf(await read(client, old)).code).toBe("11");
  });

  test("also while etcd is distant, and each revision is compacted as it is read", async () => {
    const { direct, client, api } = await served(await delayed((await etcdOf()).url, 5));
    const { cached } = api.stats().ranges;
    const wrong: object[] = [];
    for (let round = 0; round < 4; round++) {
      const old = await put(direct, "a");
      await put(direct, "b");
      await untilCached(client, api);
      const reads: Promise<RawResponse>[] = [];
      let compactedAt = 0;
      // Each write takes a few milliseconds, so reads are at every stage when it is compacted.
      for (let i = 0; i < 40; i++) {
        reads.push(read(client, old));
        const newest = await put(direct, "c");
        if (i === 20) compactedAt = await compact(direct, newest);
      }
      for (const response of await Promise.all(reads)) {
        if (statusOf(response).code === "11") continue;
        const revision = revisionOf(response);
        if (revision > compactedAt) wrong.push({ old, compactedAt, revision });
      }
    }
    expect(wrong).toEqual([]);
    expect(api.stats().ranges.cached).toBeGreaterThan(cached);
  });
});
