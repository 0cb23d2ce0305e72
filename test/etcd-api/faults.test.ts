import { execFile } from "node:child_process";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { CuttingProxy } from "../etcd/cutting-proxy.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { freePorts } from "../etcd/free-ports.ts";
import { encode, Message } from "../foreign/protobuf.ts";
import { heldBytes } from "../heap.ts";
import { type Front, metricOf, startFront } from "./front.ts";
import { RawGrpc, statusOf } from "./raw-grpc.ts";

const run = promisify(execFile);

const closing: (() => Promise<void> | void)[] = [];

afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function started(): Promise<Etcd> {
  const etcd = await startEtcd();
  closing.push(() => etcd.stop());
  return etcd;
}

async function frontTo(...urls: readonly string[]): Promise<Front> {
  const front = await startFront(urls);
  closing.push(() => front.stop());
  return front;
}

function clientOf(url: string): RawGrpc {
  const client = new RawGrpc(url);
  closing.push(() => client.close());
  return client;
}

const range = (client: RawGrpc, fields: object = { 1: "a" }) =>
  client.unary("/etcdserverpb.KV/Range", encode({ ...fields }));
const put = (client: RawGrpc, key: string, value: string | Buffer) =>
  client.unary("/etcdserverpb.KV/Put", encode({ 1: key, 2: value }));

describe("While etcd is gone", () => {
  test("calls fail at once, with the text after which clientv3 repeats even a write", async () => {
    const etcd = await started();
    const client = clientOf((await frontTo(etcd.url)).url);
    expect(statusOf(await put(client, "a", "1")).code).toBe("0");
    const waiting = client.open("/etcdserverpb.Watch/Watch");
    waiting.send(encode({ 1: encode({ 1: "a" }) }));
    await waiting.untilMessages(1);

    await etcd.kill();

    // A living stream does not outlive its upstream (etcd issues 21813, 18231).
    const ended = statusOf(await waiting.response);
    expect(ended.code).toBe("14");
    expect(decodeURIComponent(ended.message)).toContain("the connection to etcd was lost");
    const refused = statusOf(await put(client, "a", "2"));
    expect({ ...refused, message: decodeURIComponent(refused.message) }).toEqual({
      code: "14",
      message: "there is no connection available",
    });

    await etcd.start();
    while (statusOf(await put(client, "a", "3")).code !== "0") await delay(5);
  });

  test("a service starts, and serves once etcd does (etcd issue 21354)", async () => {
    const etcd = await started();
    await etcd.kill();
    const client = clientOf((await frontTo(etcd.url)).url);
    expect(statusOf(await range(client)).code).toBe("14");
    await etcd.start();
    while (statusOf(await range(client)).code !== "0") await delay(5);
  });
});

describe("With several members", () => {
  test("calls go to the next when one can't be reached, and stay there", async () => {
    const etcd = await started();
    const [unused = 0] = await freePorts(1);
    const client = clientOf((await frontTo(`http://127.0.0.1:${unused}`, etcd.url)).url);
    expect(statusOf(await range(client)).code).toBe("0");
    expect(statusOf(await range(client)).code).toBe("0");
  });

  test("a connection that is cut in a response ends its calls, and later calls connect again", async () => {
    const etcd = await started();
    const proxy = await CuttingProxy.to(etcd.url);
    closing.push(() => proxy.close());
    const direct = clientOf(etcd.url);
    await put(direct, "big/", Buffer.alloc(1_000_000));
    const client = clientOf((await frontTo(proxy.url)).url);
    expect(statusOf(await range(client)).code).toBe("0");
    proxy.cutAfter(500_000);
    const cut = await range(client, { 1: "big/", 2: "big0" });
    // Clients of gRPC see REFUSED_STREAM as UNAVAILABLE.
    expect([cut.rstCode, cut.trailers]).toEqual([7, undefined]);
    expect(statusOf(await range(client)).code).toBe("0");
  });
});

// Not each release has the tool: see scripts/etcd.ts.
describe("When etcd's connection is cut within a response", () => {
  /** An etcd with 2.7 MB of values, a proxy that cuts its connections, and a front behind that. */
  async function cutting() {
    const etcd = await started();
    const direct = clientOf(etcd.url);
    for (const key of ["big/0", "big/1", "big/2"]) await put(direct, key, "x".repeat(900_000));
    const proxy = await CuttingProxy.to(etcd.url);
    closing.push(() => proxy.close());
    const front = await frontTo(proxy.url);
    return {
      etcd,
      direct,
      proxy,
      endpoints: { etcd: new URL(proxy.url).host, front: front.address },
    };
  }

  test.for(["etcd", "front"] as const)("etcdctl repeats a read, of %s", async (of, { skip }) => {
    const { etcd, proxy, endpoints } = await cutting();
    if (etcd.etcdctl === undefined) return skip();
    proxy.cutAfter(300_000);
    const args = ["--endpoints", endpoints[of], "get", "big/", "--prefix", "--print-value-only"];
    const { stdout } = await run(etcd.etcdctl, args, { env: {}, maxBuffer: 10_000_000 });
    expect(stdout.length).toBe(3 * 900_001);
  });

  test.for(["etcd", "front"] as const)(
    "etcdctl never repeats a write, of %s",
    async (of, { skip }) => {
      const { etcd, direct, proxy, endpoints } = await cutting();
      if (etcd.etcdctl === undefined) return skip();
      proxy.cutAfter(300_000);
      const args = ["--endpoints", endpoints[of], "put", "--prev-kv", "big/0", "new"];
      await expect(run(etcd.etcdctl, args, { env: {} })).rejects.toThrow(/Error:/);
      const { body } = await range(direct, { 1: "big/0" });
      const [object] = new Message(body.subarray(5)).messages(2);
      expect([object?.text(5), object?.number(4)]).toEqual(["new", 2]);
    },
  );
});

describe("A client that reads slowly", () => {
  test("slows only its own call, and holds little memory", async () => {
    const etcd = await started();
    const front = await frontTo(etcd.url);
    const direct = clientOf(etcd.url);
    const keys = Array.from({ length: 16 }, (_, i) => `big/${i}`);
    await Promise.all(keys.map((key) => put(direct, key, Buffer.alloc(1_000_000))));
    const slow = clientOf(front.url);
    const before = heldBytes();
    const call = slow.open("/etcdserverpb.KV/Range");
    call.stream.pause();
    call.send(encode({ 1: "big/", 2: "big0" }));
    call.halfClose();
    // What is stuck for a second is charged to the client: it is a part of the windows, not of the response.
    let held = 0;
    while (held === 0) held = await metricOf(front, "watch_fanout_pool_bytes", "unsent");
    expect(held).toBeLessThan(1_000_000);
    // In this process is also what the client has received: up to 64 KiB.
    expect(heldBytes() - before).toBeLessThan(4_000_000);
    // Other calls, also of the same connections, are answered.
    const other = clientOf(front.url);
    for (const client of [slow, other]) expect(statusOf(await range(client)).code).toBe("0");
    call.stream.resume();
    const response = await call.response;
    expect(statusOf(response).code).toBe("0");
    expect(new Message(response.body.subarray(5)).messages(2)).toHaveLength(16);
    while (held > 0) held = await metricOf(front, "watch_fanout_pool_bytes", "unsent");
  });
});
