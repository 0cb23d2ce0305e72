import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import {
  afterAll,
  afterEach,
  beforeAll,
  beforeEach,
  describe,
  expect,
  onTestFinished,
  test,
} from "vitest";
import { type Client, connect } from "../../src/client/connect.ts";
import type { RangeRequest } from "../../src/etcd/wire/range-request.ts";
import type { WatchEvent } from "../../src/model/event.ts";
import { startServe, untilStatus } from "../cli/serve/serve-process.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { RecordingProxy } from "../etcd/recording-proxy.ts";
import { type Options, Tier, until } from "../relay/tiers.ts";

const value = (text: string): Buffer => Buffer.from(text);

let etcd: Etcd;
let proxy: RecordingProxy;
let folder: string;
const tiers: Tier[] = [];

beforeAll(async () => {
  etcd = await startEtcd();
});

afterAll(() => etcd.stop());

beforeEach(async () => {
  proxy = await RecordingProxy.to(etcd.url);
  folder = mkdtempSync(join(tmpdir(), "warm-start-"));
});

afterEach(async () => {
  for (const tier of tiers.splice(0)) await tier.stop();
  proxy.close();
  rmSync(folder, { recursive: true });
});

/** A server with its own folder for caches. */
async function server(name: string, options: Options = {}): Promise<Tier> {
  const resource = ["things=/things/", "others=/others/"];
  const cacheDir = join(folder, name);
  const tier = await Tier.start({ etcd: proxy.url, resource, "cache-dir": cacheDir, ...options });
  tiers.push(tier);
  return tier;
}

async function relay(name: string, upstream: Tier, options: Options = {}): Promise<Tier> {
  const cacheDir = join(folder, name);
  const tier = await Tier.relay(upstream.address, { "cache-dir": cacheDir, ...options });
  tiers.push(tier);
  return tier;
}

async function stop(tier: Tier): Promise<void> {
  tiers.splice(tiers.indexOf(tier), 1);
  await tier.stop();
}

/** Ends a tier, and starts it again on its port. */
async function restart(tier: Tier): Promise<Tier> {
  const next = await tier.restart();
  tiers[tiers.indexOf(tier)] = next;
  return next;
}

/**
 * The Ranges of several keys below a prefix that reached etcd, without those that have no object: a worker asks so, at any time,
 * whether etcd may be read.
 */
function rangesOf(prefix: string): RangeRequest[] {
  return proxy.rangesOfSeveral
    .map((range) => ({ range, key: range.key.toString() }))
    .filter(({ key }) => key.startsWith(prefix) && key !== `${prefix}\0`)
    .map(({ range }) => range);
}

/** That etcd was asked for no objects. An empty resource has no last change: its keys are read, if there are any. */
function expectNoList(): void {
  expect(rangesOf("/things/")).toEqual([]);
  for (const range of rangesOf("/others/"))
    expect(range).toMatchObject({ keysOnly: true, limit: 1 });
}

async function keysOf(client: Client, match: "ANY" | "LINEARIZABLE"): Promise<string[]> {
  const page = await client.page("things", { at: { match } });
  return page.items.map(({ key }) => key);
}

/** The number of lists after the first ones, and of starts from a kept state, of all resources of a tier. */
async function listsOf(tier: Tier): Promise<{ relists: number; warmStarts: number }> {
  const relists = await tier.metric("watch_fanout_upstream_relists_total");
  const warmStarts = await tier.metric("watch_fanout_cache_warm_starts_total");
  return { relists, warmStarts };
}

/** Waits until all caches are at a revision. */
async function untilReached(tier: Tier, revision: number): Promise<void> {
  const client = tier.client();
  await until(
    async () => (await client.page("things", { at: { match: "ANY" } })).revision >= revision,
  );
}

/** Waits until a tier knows that its source is lost. Returns a time no earlier than when that was lost, in milliseconds of the process. */
async function untilStale(tier: Tier): Promise<number> {
  const client = tier.client();
  for (;;) {
    const { staleForMs } = await client.page("things", { at: { match: "ANY" } });
    if (staleForMs !== undefined) return performance.now() - staleForMs;
    await delay(10);
  }
}

/** Waits until a tier has its source again. */
async function untilFollowing(tier: Tier): Promise<void> {
  const client = tier.client();
  await until(async () => {
    const { staleForMs } = await client.page("things", { at: { match: "ANY" } });
    return staleForMs === undefined;
  });
}

/** The values of all events, in their order, up to a last one. */
async function valuesUntil(
  last: string,
  batches: AsyncIterable<{ readonly events: readonly WatchEvent[] }>,
): Promise<string[]> {
  const values: string[] = [];
  for await (const { events } of batches) {
    for (const { object } of events) values.push(Buffer.from(object.value).toString());
    if (values.at(-1) === last) break;
  }
  return values;
}

async function compact({ url }: Etcd, revision: number): Promise<void> {
  const response = await fetch(`${url}/v3/kv/compaction`, {
    method: "POST",
    body: JSON.stringify({ revision: String(revision), physical: true }),
  });
  expect(response.status).toBe(200);
}

/** Waits until the cache has a key. */
async function untilHas(tier: Tier, key: string): Promise<void> {
  const client = tier.client();
  await until(async () => (await keysOf(client, "ANY")).includes(key));
}

describe("A server with --cache-dir", () => {
  test("costs etcd no Range of a resource when it is restarted", async () => {
    const first = await server("a");
    const client = first.client();
    for (let i = 0; i < 50; i++) await client.put("things", `key-${i}`, value(`${i}`));
    await untilHas(first, "key-49");
    expect(rangesOf("/things/").length).toBeGreaterThan(0);
    await stop(first);
    proxy.reset();
    const second = await server("a");
    // A read waits for the watch for 3 s, then etcd is read.
    await untilFollowing(second);
    expect(await keysOf(second.client(), "LINEARIZABLE")).toHaveLength(50);
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 2 });
    expectNoList();
  });

  test("starts without etcd, with the age of what it serves, and follows it later", async () => {
    const first = await server("a");
    await first.client().put("things", "a", value("1"));
    await untilHas(first, "a");
    await stop(first);
    proxy.cut();
    const second = await server("a");
    const client = second.client({ maxAttempts: 1 });
    const page = await client.page("things", { at: { match: "ANY" } });
    expect(page.items.map(({ key }) => key)).toContain("a");
    expect(page.staleForMs).toBeGreaterThan(0);
    await expect(client.page("things")).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    const batches = client.watch("things", { afterRevision: page.revision });
    proxy.join();
    await client.put("things", "b", value("2"));
    for await (const { events } of batches) {
      if (events.some(({ object }) => object.key === "b")) break;
    }
    expect((await client.page("things", { at: { match: "ANY" } })).staleForMs).toBeUndefined();
    expect(rangesOf("/things/").filter(({ keysOnly }) => !keysOnly)).toHaveLength(1);
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 2 });
  });

  test("relists what etcd has compacted", async () => {
    // Its own, as a compaction costs the proof of what was kept before it a comparison.
    const own = await startEtcd();
    onTestFinished(() => own.stop());
    const options = { etcd: own.url };
    const first = await server("a", options);
    const client = first.client();
    await client.put("things", "gone", value("1"));
    await untilHas(first, "gone");
    await stop(first);
    const other = await server("b", options);
    const writer = other.client();
    await writer.delete("things", "gone");
    const { revision } = await writer.put("things", "new", value("1"));
    await compact(own, revision);
    const second = await server("a", options);
    const keys = await keysOf(second.client(), "LINEARIZABLE");
    expect(keys).toContain("new");
    expect(keys).not.toContain("gone");
    expect((await listsOf(second)).relists).toBeGreaterThan(0);
    for (const tier of tiers.splice(0)) await tier.stop();
  });

  test("compares its keys where etcd has compacted what was before its last change", async () => {
    const own = await startEtcd();
    onTestFinished(() => own.stop());
    const watched = await RecordingProxy.to(own.url);
    onTestFinished(() => watched.close());
    const options = { etcd: watched.url, resource: "things=/things/" };
    const first = await server("a", options);
    const client = first.client();
    const { revision } = await client.put("things", "a", value("1"));
    await client.put("things", "b", value("1"));
    await untilHas(first, "b");
    await stop(first);
    await compact(own, revision);
    watched.reset();
    const second = await server("a", options);
    expect(await keysOf(second.client(), "LINEARIZABLE")).toEqual(["a", "b"]);
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 1 });
    const ranges = watched.rangesOfSeveral.filter(({ key }) => String(key).startsWith("/things/"));
    // The watch asks, and the read while that is not open.
    expect(ranges.length).toBeGreaterThan(0);
    for (const range of ranges) expect(range).toMatchObject({ keysOnly: true, limit: 3 });
    for (const tier of tiers.splice(0)) await tier.stop();
  });

  test("does not start from the state of another prefix or kind of keys", async () => {
    const first = await server("a");
    await first.client().put("things", "a", value("1"));
    await untilHas(first, "a");
    await stop(first);
    const resource = ["things=/other-things/", "others=/others/"];
    const second = await server("a", { resource });
    expect(await keysOf(second.client(), "LINEARIZABLE")).toEqual([]);
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 1 });
    await stop(second);
    const third = await server("a", { "etcd-api": "on" });
    expect(await listsOf(third)).toEqual({ relists: 0, warmStarts: 0 });
  });

  test("reads labels and fields again, with another codec", async () => {
    const first = await server("a");
    const pod = JSON.stringify({ metadata: { labels: { app: "web" } }, phase: "Running" });
    await first.client().put("things", "pod", value(pod));
    await untilHas(first, "pod");
    await stop(first);
    proxy.cut();
    const config = join(folder, "config.yaml");
    writeFileSync(
      config,
      "resources: [{name: things, prefix: /things/, codec: json, fields: [phase], indexes: [phase]}]",
    );
    const options = { config, etcd: proxy.url, "cache-dir": join(folder, "a") };
    const second = await Tier.start(options);
    tiers.push(second);
    const selected = await second.client().page("things", {
      at: { match: "ANY" },
      labelSelector: "app=web",
      fieldSelector: "phase=Running",
    });
    expect(selected.items.map(({ key }) => key)).toEqual(["pod"]);
  });

  test("in a folder that another process uses starts without it", async () => {
    const first = await server("a");
    await first.client().put("things", "a", value("1"));
    await untilHas(first, "a");
    const second = await server("a");
    expect(await keysOf(second.client(), "LINEARIZABLE")).toContain("a");
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 0 });
    await stop(second);
    const third = await restart(first);
    expect(await listsOf(third)).toEqual({ relists: 0, warmStarts: 2 });
  });
});

test("A rolling restart of three servers costs etcd no list of objects, and no client either", async () => {
  let replicas = [await server("a"), await server("b"), await server("c")];
  const client = connect({ address: replicas.map(({ address }) => address) });
  let written = 0;
  const write = async (): Promise<void> => {
    await client.put("things", `roll-${written % 7}`, value(`${written}`));
    written++;
  };
  for (let i = 0; i < 20; i++) await write();
  const { revision } = await client.page("things");
  await Promise.all(replicas.map((each) => untilReached(each, revision)));
  proxy.reset();
  const watches = (["EVERY_EVENT", "LATEST_STATE"] as const).map((delivery) =>
    valuesUntil("last", client.watch("things", { afterRevision: revision, delivery })),
  );
  for (const [i, replica] of replicas.entries()) {
    await write();
    const next = restart(replica);
    for (let j = 0; j < 5; j++) await write();
    replicas = replicas.with(i, await next);
    await write();
  }
  await client.put("things", "end", value("last"));
  const [every = [], latest = []] = await Promise.all(watches);
  const missed = Array.from({ length: written - 20 }, (_, i) => String(20 + i));
  expect(every).toEqual([...missed, "last"]);
  expect(latest.at(-1)).toBe("last");
  expectNoList();
  expect(await Promise.all(replicas.map(listsOf))).toEqual(
    replicas.map(() => ({ relists: 0, warmStarts: 2 })),
  );
  client.close();
});

describe("A relay with --cache-dir", () => {
  test("starts and serves while its upstream is gone, and follows it later without a list", async () => {
    const root = await server("root");
    await root.client().put("things", "relayed", value("1"));
    const first = await relay("relay", root);
    await untilHas(first, "relayed");
    const { address } = root;
    await stop(first);
    await stop(root);
    const second = await relay("relay", root);
    const client = second.client({ maxAttempts: 1 });
    const page = await client.page("things", { at: { match: "ANY" } });
    expect(page.items.map(({ key }) => key)).toContain("relayed");
    expect(page.staleForMs).toBeGreaterThan(0);
    expect(second.service.resources.map(({ name }) => name)).toEqual(["others", "things"]);
    await expect(client.page("things")).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
    const again = await server("root", { listen: address });
    await again.client().put("things", "later", value("1"));
    await untilHas(second, "later");
    expect(await listsOf(second)).toEqual({ relists: 0, warmStarts: 2 });
    // The root has started from its own caches, and its age is asked for every two seconds.
    await untilFollowing(second);
  });

  test("counts the age of what its upstream had when that had lost etcd", async () => {
    const root = await server("root");
    await root.client().put("things", "aged", value("1"));
    await untilHas(root, "aged");
    proxy.cut();
    const lostAt = await untilStale(root);
    await delay(2_000);
    const first = await relay("relay", root);
    await untilHas(first, "aged");
    await stop(first);
    await stop(root);
    const second = await relay("relay", root);
    const lostForMs = performance.now() - lostAt;
    const page = await second.client().page("things", { at: { match: "ANY" } });
    // The time that the root's response takes is not counted: half of what the relay would miss that counts from its own start.
    expect(page.staleForMs).toBeGreaterThan(lostForMs - 1_000);
    proxy.join();
  });

  test("without a cache of its own begins with what its server has, while that has lost etcd", async () => {
    const root = await server("root");
    await root.client().put("things", "old", value("1"));
    await untilHas(root, "old");
    proxy.cut();
    const cold = await Tier.relay(root.address);
    tiers.push(cold);
    const page = await cold.client().page("things", { at: { match: "ANY" } });
    expect(page.items.map(({ key }) => key)).toContain("old");
    await untilStale(cold);
    proxy.join();
    await untilFollowing(root);
    await root.client().put("things", "newer", value("1"));
    await untilHas(cold, "newer");
    expect((await listsOf(cold)).relists).toBe(0);
  });
});

test("A service with workers starts warm without its etcd, and costs it no Range of a resource", async () => {
  const options = [
    ...["--etcd", proxy.url, "--resource", "things=/things/", "--workers", "2"],
    ...["--cache-dir", join(folder, "workers")],
  ];
  const first = await startServe(options);
  await using _first = first.process;
  const writer = connect({ address: first.grpc });
  await writer.put("things", "of-workers", value("1"));
  await until(async () => (await keysOf(writer, "ANY")).includes("of-workers"));
  writer.close();
  first.process.kill("SIGTERM");
  expect((await first.process.exit).code).toBe(0);
  proxy.cut();
  proxy.reset();
  const second = await startServe(options);
  await using _second = second.process;
  await untilStatus(`${second.admin}/readyz`, 200);
  const client = connect({ address: second.grpc, maxAttempts: 1 });
  const page = await client.page("things", { at: { match: "ANY" } });
  expect(page.items.map(({ key }) => key)).toContain("of-workers");
  expect(page.staleForMs).toBeGreaterThan(0);
  proxy.join();
  const patient = connect({ address: second.grpc });
  await patient.put("things", "after", value("1"));
  // From the cache, which follows etcd again: a linearizable read would wait for that for 3 s, and then be one of etcd.
  await until(async () => (await keysOf(patient, "ANY")).includes("after"));
  expect(rangesOf("/things/")).toEqual([]);
  client.close();
  patient.close();
});
