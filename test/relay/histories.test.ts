import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { Relay as Network } from "../faults/relay.ts";
import { type Options, Tier, until } from "./tiers.ts";

const value = Buffer.from("v");

/** A root and a relay that reach their sources over networks of their own, and a relay of that relay. */
interface Chain {
  readonly root: Tier;
  readonly toSource: Network;
  readonly toRoot: Network;
  readonly relay: Tier;
  readonly leaf: Tier;
  stop(): Promise<void>;
}

describe("What the source has lost is reported at each tier:", () => {
  let etcd: Etcd;

  beforeAll(async () => {
    etcd = await startEtcd();
  });

  afterAll(() => etcd?.stop());

  async function chain(events: string, options: Options = {}): Promise<Chain> {
    const toSource = await Network.to(Number(new URL(etcd.url).port));
    const root = await Tier.start({
      ...{ etcd: toSource.url, resource: "things=/things/" },
      ...{ "event-window-max-events": events, "event-window-min-events": "0", ...options },
    });
    const toRoot = await Network.to(root.port);
    const relay = await Tier.relay(`127.0.0.1:${toRoot.port}`);
    const leaf = await Tier.relay(relay.address);
    const stop = async (): Promise<void> => {
      for (const tier of [leaf, relay, root]) await tier.stop();
      for (const network of [toRoot, toSource]) await network.close();
    };
    return { root, toSource, toRoot, relay, leaf, stop };
  }

  /** Writes directly to etcd, and returns the last revision. */
  async function write(count: number): Promise<number> {
    let revision = 0;
    for (let i = 0; i < count; i++) {
      const key = Buffer.from(`/things/${i % 5}`).toString("base64");
      const { header } = await etcdCall("kv/put", { key, value: "" });
      revision = Number((header as { readonly revision: string }).revision);
    }
    return revision;
  }

  async function etcdCall(path: string, body: object): Promise<Record<string, unknown>> {
    const response = await fetch(`${etcd.url}/v3/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    return (await response.json()) as Record<string, unknown>;
  }

  /** Opens a stream of each mode at each tier, and returns the ends of those of EVERY_EVENT and the others. */
  async function streams(tiers: readonly Tier[]) {
    const opened = await Promise.all(
      tiers.map(async (tier) => {
        const client = tier.client();
        const every = client.watch("things", { resume: false });
        const latest = client.watch("things", { delivery: "LATEST_STATE", resume: false });
        await Promise.all([every.next(), latest.next()]);
        return { every, latest };
      }),
    );
    return opened;
  }

  test("events that etcd has compacted while the root was disconnected", async () => {
    const { root, toSource, relay, leaf, stop } = await chain("100");
    onTestFinished(stop);
    await write(5);
    const open = await streams([root, relay, leaf]);
    toSource.refuse();
    const revision = await write(10);
    await etcdCall("kv/compaction", { revision });
    toSource.heal();
    for (const { every, latest } of open) {
      await expect(every.next()).rejects.toMatchObject({ reason: "HISTORY_LOST" });
      let reached = 0;
      while (reached < revision) reached = (await latest.next()).value?.revision ?? Infinity;
      await latest.return();
    }
    const { revision: now } = await leaf.client().put("things", "new", value);
    expect((await root.client().get("things", "new")).object.modRevision).toBe(now);
  });

  test("events that the root no longer has when its relay comes back", async () => {
    const { root, toRoot, relay, leaf, stop } = await chain("10", { "deep-reads": "0" });
    onTestFinished(stop);
    await write(5);
    await leaf.client().get("things", "0");
    const [ofRoot, ...ofRelays] = await streams([root, relay, leaf]);
    toRoot.refuse();
    const revision = await write(40);
    await root.client().get("things", "0");
    toRoot.heal();
    for (const { every, latest } of ofRelays) {
      await expect(every.next()).rejects.toMatchObject({ reason: "HISTORY_LOST" });
      let reached = 0;
      while (reached < revision) reached = (await latest.next()).value?.revision ?? Infinity;
      await latest.return();
    }
    // The root's own clients have lost nothing.
    let events = 0;
    while (events < 40) events += (await ofRoot?.every.next())?.value?.events.length ?? 40;
    await Promise.all([ofRoot?.every.return(), ofRoot?.latest.return()]);
    await until(async () => (await relay.metric("watch_fanout_upstream_relists_total")) === 1);
    expect(await leaf.metric("watch_fanout_upstream_relists_total")).toBe(1);
  });
});

test("Another history in the place of the root is reported at each tier, with the same id.", async () => {
  const [old, other] = [await Tier.start({}), await Tier.start({})];
  const network = await Network.to(old.port);
  const relay = await Tier.relay(`127.0.0.1:${network.port}`);
  const leaf = await Tier.relay(relay.address);
  onTestFinished(async () => {
    for (const tier of [leaf, relay, old, other]) await tier.stop();
    await network.close();
  });
  for (let i = 0; i < 9; i++) await leaf.client().put("default", `old/${i}`, value);
  const before = await leaf.client().get("default", "old/8");
  const ends = [relay, leaf].map(async (tier) => {
    const watch = tier.client().watch("default", { resume: false });
    await watch.next();
    return watch;
  });
  const watches = await Promise.all(ends);
  const put = await other.client().put("default", "new", value);
  network.aimAt(other.port);
  network.cut();
  for (const watch of watches) {
    await expect(watch.next()).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
      metadata: { history_id: put.historyId },
    });
  }
  expect(put.historyId).not.toBe(before.historyId);
  for (const tier of [relay, leaf]) {
    const client = tier.client();
    expect(await client.get("default", "new")).toEqual(put);
    await expect(
      client.get("default", "old/8", { historyId: before.historyId }),
    ).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    await expect(client.get("default", "old/8")).rejects.toMatchObject({
      reason: "OBJECT_NOT_FOUND",
    });
  }
});
