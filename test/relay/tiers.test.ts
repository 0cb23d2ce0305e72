import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { WatchFanoutError } from "../../src/base/errors.ts";
import type { AtomicBatch } from "../../src/client/watch/client-calls.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { Relay as Network } from "../faults/relay.ts";
import { TestClient } from "../server/test-client.ts";
import { compareHistories } from "./random-histories.ts";
import { sumOf, Tier, until } from "./tiers.ts";

/** Calls etcd through its HTTP gateway. */
async function call(etcd: Etcd, path: string, body: object): Promise<Record<string, unknown>> {
  const response = await fetch(`${etcd.url}/v3/${path}`, {
    method: "POST",
    body: JSON.stringify(body),
  });
  return (await response.json()) as Record<string, unknown>;
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");

/** Writes all keys in one transaction, and returns its revision. */
async function transaction(etcd: Etcd, keys: readonly string[], value: string): Promise<number> {
  const success = keys.map((key) => ({
    requestPut: { key: base64(`/things/${key}`), value: base64(value) },
  }));
  const { header } = await call(etcd, "kv/txn", { success });
  return Number((header as { readonly revision: string }).revision);
}

/** Reads until a batch has the revision, and returns all batches. */
async function through(
  batches: AsyncGenerator<AtomicBatch, void, void>,
  revision: number,
): Promise<AtomicBatch[]> {
  const all: AtomicBatch[] = [];
  for (;;) {
    const { value } = await batches.next();
    if (value === undefined) throw new Error("The watch has ended.");
    all.push(value);
    if (value.revision >= revision) return all;
  }
}

const value = Buffer.from("v");
const things = ["things=/things/"];

describe("Root, relay and relay of the relay", () => {
  let etcd: Etcd;
  let root: Tier;
  let replica: Tier;
  let network: Network;
  let relay: Tier;
  let leaf: Tier;

  beforeAll(async () => {
    etcd = await startEtcd();
    root = await Tier.start({ etcd: etcd.url, resource: things });
    replica = await Tier.start({ etcd: etcd.url, resource: things });
    // What the relay follows: one root, whose process can be replaced by another.
    network = await Network.to(root.port);
    relay = await Tier.relay(`127.0.0.1:${network.port}`);
    leaf = await Tier.relay(relay.address);
  });

  afterAll(async () => {
    for (const tier of [leaf, relay, replica, root]) await tier?.stop();
    await network?.close();
    await etcd?.stop();
  });

  const tiers = (): Tier[] => [root, relay, leaf];

  test("serve watches that share a stream, and their common progress", async () => {
    for (const tier of tiers()) {
      const client = new TestClient(tier.port);
      const stream = client.subscribe();
      for (const id of [1, 2]) {
        stream.add(id, { resource: "things", prefix: `shared-${id}/` });
        await stream.watchOf(id);
      }
      const revision = await transaction(etcd, ["shared-1/a", "shared-2/a"], "v");
      stream.requestProgress();
      expect(await stream.progress()).toBeGreaterThanOrEqual(revision);
      // Both came before.
      expect([stream.waitingOf(1), stream.waitingOf(2)]).toEqual([1, 1]);
      stream.cancel();
      client.close();
      await transaction(etcd, ["shared-1/a", "shared-2/a"], "v");
    }
  });

  test("serve the same objects, revisions, histories and leases", async () => {
    const put = await leaf.client().put("things", "same", value, { ttlMs: 60_000 });
    expect(put.object.lease).not.toBe(0n);
    for (const tier of tiers()) {
      const got = await tier.client().get("things", "same");
      expect(got).toEqual({ ...put, revision: got.revision });
      expect(got.revision).toBeGreaterThanOrEqual(put.revision);
      const deleted = tier === leaf && (await tier.client().delete("things", "same"));
      if (deleted !== false) expect(deleted.object).toEqual(put.object);
    }
  });

  test("continue each other's lists by page token", async () => {
    const keys = ["pages/0", "pages/1", "pages/2"];
    await transaction(etcd, keys, "v");
    const found: string[] = [];
    const revisions = new Set<number>();
    let pageToken = "";
    for (const tier of tiers()) {
      const page = await tier.client().page("things", { prefix: "pages/", pageSize: 1, pageToken });
      found.push(...page.items.map(({ key }) => key));
      revisions.add(page.revision);
      pageToken = page.nextPageToken;
      await transaction(etcd, ["pages/3"], "later");
    }
    expect([found, revisions.size]).toEqual([keys, 1]);
  });

  test("have the same histories of objects, which are what a watch has seen", async () => {
    const clients = tiers().map((tier) => tier.client());
    await compareHistories(etcd, "/things/", "things", clients);
  });

  test("list their resources", async () => {
    const { revision } = await leaf.client().put("things", "listed", value);
    for (const tier of tiers()) {
      await tier.client().get("things", "listed");
      const [only, ...others] = await tier.client().resources();
      expect(only).toMatchObject({ name: "things", codec: "opaque", isCached: true });
      expect(only).toMatchObject({ isReadableInFull: true, staleForMs: undefined });
      expect(only?.revision).toBeGreaterThanOrEqual(revision);
      expect(others).toEqual([]);
    }
  });

  test("give the same error with the same reason and details", async () => {
    const { revision } = await root.client().put("things", "error", value);
    await transaction(etcd, ["error"], "newer");
    const failing: ((tier: Tier) => Promise<unknown>)[] = [
      (tier) => tier.client().put("things", "error", value, { expectedModRevision: revision }),
      (tier) => tier.client().put("things", "error", value, { lease: 12_345n }),
      (tier) => tier.client().put("things", "error", Buffer.alloc(1_900_000)),
      (tier) => tier.client().put("things", "error", value, { historyId: "another" }),
      (tier) => tier.client().get("things", "error", { historyId: "another" }),
      (tier) => tier.client().delete("things", "absent"),
      (tier) =>
        tier.client().get("things", "error", { at: { match: "EXACT", revision: 1_000_000 } }),
    ];
    const reasons: string[] = [];
    for (const fail of failing) {
      const errors: object[] = [];
      for (const tier of tiers()) {
        const error = await fail(tier).then(
          () => new Error("It succeeded."),
          (failure: WatchFanoutError) => failure,
        );
        const { reason, metadata, field } = error as WatchFanoutError;
        errors.push({ reason, metadata, field });
      }
      expect(errors[1]).toEqual(errors[0]);
      expect(errors[2]).toEqual(errors[0]);
      reasons.push((errors[0] as WatchFanoutError).reason);
    }
    expect(reasons).toEqual([
      ...["REVISION_CONFLICT", "LEASE_NOT_FOUND", "VALUE_TOO_LARGE", "HISTORY_CHANGED"],
      ...["HISTORY_CHANGED", "OBJECT_NOT_FOUND", "HISTORY_CHANGED"],
    ]);
  });

  test("deliver a transaction as one batch", async () => {
    const watch = leaf.client().watch("things");
    await watch.next();
    const keys = Array.from({ length: 20 }, (_, i) => `batch/${i}`);
    const revision = await transaction(etcd, keys, "v");
    const events = (await through(watch, revision)).filter((batch) => batch.events.length > 0);
    expect(events.map(({ events: { length }, revision: at }) => [length, at])).toEqual([
      [20, revision],
    ]);
    await watch.return();
  });

  test("have one watch of etcd for each root and resource", async () => {
    // One that has just been resumed is counted a moment later, and the one before it for a moment longer.
    await until(async () => {
      const text = await (await fetch(`${etcd.url}/metrics`)).text();
      return sumOf(text, "etcd_debugging_mvcc_watcher_total") === 2;
    });
  });

  /** Number of reads that etcd has answered. */
  async function ranges(): Promise<number> {
    const text = await (await fetch(`${etcd.url}/metrics`)).text();
    const ofRange = /grpc_server_handled_total\{.*OK.*grpc_method="Range".*\} (\d+)/.exec(text);
    return Number(ofRange?.[1]);
  }

  /** Returns what counts the reads from now on, without those of the history's id, which each root reads every 2 s. */
  async function counting(): Promise<() => Promise<number>> {
    const [before, since] = [await ranges(), performance.now()];
    return async () => {
      const count = (await ranges()) - before;
      const roots = 2;
      return count - roots * Math.floor((performance.now() - since) / 2_000);
    };
  }

  test("ask etcd once for linearizable reads that begin together, however many and deep", async () => {
    const clients = tiers().map((tier) => tier.client());
    const readAll = () =>
      Promise.all(Array.from({ length: 150 }, (_, i) => clients[i % 3]?.page("things")));
    // Opens the connections.
    await readAll();
    const questions = await counting();
    await readAll();
    // A tier's first read does not wait for the others, which share the question after it. The slower the machine, the fewer
    // reads begin together: some five Ranges on an idle one, and a dozen on a busy one. Without sharing there would be 150.
    expect(await questions()).toBeLessThanOrEqual(30);
  });

  test("pass on one question for a linearizable read after a write", async () => {
    const client = leaf.client();
    const count = 40;
    const questions = await counting();
    for (let i = 0; i < count; i++) {
      // A key of no resource: the caches learn of the revision by progress only.
      const put = { key: base64("/elsewhere"), value: base64(String(i)) };
      const { header } = await call(etcd, "kv/put", put);
      const { revision } = await client.page("things");
      expect(revision).toBe(Number((header as { readonly revision: string }).revision));
    }
    expect(await questions()).toBeLessThan(1.5 * count);
  });

  test("continue a watch of another tier from its resume point, without a gap or repetition", async () => {
    const first = (await leaf.client().put("things", "hop/0", value)).revision;
    const seen: number[] = [];
    let resumePoint = first - 1;
    for (let i = 1; i <= 9; i++) {
      const { revision } = await root.client().put("things", `hop/${i}`, value);
      const tier = tiers()[i % 3] ?? root;
      const watch = tier
        .client()
        .watch("things", { scope: { prefix: "hop/" }, afterRevision: resumePoint });
      for (const batch of await through(watch, revision)) {
        seen.push(...batch.events.map((event) => event.revision));
        resumePoint = batch.revision;
      }
      await watch.return();
    }
    expect(seen).toEqual(Array.from({ length: 10 }, (_, i) => first + i));
  });

  test("continue when the root is replaced by another replica, without a relist", async () => {
    const watch = leaf.client().watch("things", { scope: { prefix: "root/" } });
    const [begun] = await through(watch, 1);
    const relists = await relay.metric("watch_fanout_upstream_relists_total");
    const reconnects = await relay.metric("watch_fanout_upstream_reconnects_total");
    network.aimAt(replica.port);
    network.cut();
    const revisions: number[] = [];
    for (let i = 0; i < 5; i++) {
      revisions.push((await replica.client().put("things", `root/${i}`, value)).revision);
    }
    const batches = await through(watch, revisions.at(-1) ?? 0);
    expect(batches.flatMap(({ events }) => events.map(({ revision }) => revision))).toEqual(
      revisions,
    );
    expect(batches.every(({ historyId }) => historyId === begun?.historyId)).toBe(true);
    expect(await relay.metric("watch_fanout_upstream_relists_total")).toBe(relists);
    expect(await relay.metric("watch_fanout_upstream_reconnects_total")).toBeGreaterThan(
      reconnects,
    );
    await watch.return();
  });

  test("resume watches from before a relay's restart, with every event", async () => {
    const { revision: from } = await leaf.client().put("things", "restart/0", value);
    const revisions: number[] = [];
    for (let i = 1; i <= 30; i++) {
      revisions.push((await leaf.client().put("things", `restart/${i % 7}`, value)).revision);
    }
    relay = await relay.restart();
    leaf = await leaf.restart();
    for (const tier of [relay, leaf]) {
      const watch = tier.client().watch("things", {
        afterRevision: from,
        scope: { prefix: "restart/" },
        includePrevious: true,
      });
      const batches = await through(watch, revisions.at(-1) ?? 0);
      const events = batches.flatMap((batch) => batch.events);
      expect(events.map(({ revision }) => revision)).toEqual(revisions);
      // The events from before the restart have the object before them as well.
      expect(events.at(-1)?.previous?.modRevision).toBe(revisions.at(-8));
      await watch.return();
    }
    expect(await leaf.metric("watch_fanout_upstream_relists_total")).toBe(0);
  });

  test("serve cached reads while their source is away, and say how old they may be", async () => {
    const at = { match: "ANY" } as const;
    const { revision } = await leaf.client().put("things", "stale", value);
    await leaf.client().get("things", "stale");
    // The last test: to recover takes the relays seconds.
    network.refuse();
    const [ofRelay, ofLeaf] = [relay.client(), leaf.client()];
    for (const client of [ofRelay, ofLeaf]) {
      await until(
        async () => (await client.get("things", "stale", { at })).staleForMs !== undefined,
      );
      const {
        object,
        revision: served,
        staleForMs = 0,
      } = await client.get("things", "stale", { at });
      expect([object.modRevision, served]).toEqual([revision, revision]);
      expect(staleForMs).toBeGreaterThan(0);
      const page = await client.page("things", { prefix: "stale", at });
      expect(page.staleForMs).toBeGreaterThanOrEqual(staleForMs);
      expect((await client.resources())[0]?.staleForMs).toBeGreaterThanOrEqual(staleForMs);
    }
    expect(await leaf.readyz()).toMatch(
      /^resource\/things: stale: at revision \d+, received nothing/m,
    );
    // What only the store can answer fails.
    const failed = leaf.client({ maxAttempts: 1 }).get("things", "stale");
    await expect(failed).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });
});
