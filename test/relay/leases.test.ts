import { afterEach, describe, expect, test } from "vitest";
import { pause, systemClock } from "../../src/base/clock.ts";
import type { Client } from "../../src/client/client.ts";
import { LeaderElector } from "../../src/client/coordination/leader-elector.ts";
import { Mutex } from "../../src/client/coordination/mutex.ts";
import { Session } from "../../src/client/coordination/session.ts";
import type { Compare } from "../../src/storage/store.ts";
import { type Etcd, startEtcd } from "../etcd/etcd.ts";
import { Relay as Network } from "../faults/relay.ts";
import { TestClient } from "../server/test-client.ts";
import { Tier, until } from "./tiers.ts";

const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});

async function started(starting: Promise<Tier>): Promise<Tier> {
  const tier = await starting;
  closings.push(() => tier.stop());
  return tier;
}

/** A root of etcd, a relay of it, and a relay of that, which has another name for the resource. */
async function startTiers(): Promise<{ root: Tier; leaf: Tier; network: Network; etcd: Etcd }> {
  const etcd = await startEtcd();
  closings.push(() => etcd.stop());
  const root = await Tier.start({
    etcd: etcd.url,
    resource: ["things=/things/", "hidden=/hidden/"],
  });
  const network = await Network.to(root.port);
  closings.push(() => network.close());
  const address = `127.0.0.1:${network.port}`;
  const relay = await started(Tier.relay(address, { resource: "things" }));
  const leaf = await started(Tier.relay(relay.address, { resource: "named=things" }));
  return { root, leaf, network, etcd };
}

const clientOf = (tier: Tier): TestClient => {
  const client = new TestClient(tier.port);
  closings.push(async () => client.close());
  return client;
};

describe("Leases through two tiers", () => {
  test("are those of etcd, with the objects by the names of each tier", async () => {
    const { root, leaf } = await startTiers();
    closings.push(() => root.stop());
    const [atRoot, atLeaf] = [clientOf(root), clientOf(leaf)];
    const lease = await atLeaf.grant(60);
    await atLeaf.put({ resource: "named", key: "a", lease });
    await atRoot.put({ resource: "hidden", key: "b", lease });
    expect(await atLeaf.timeToLive(lease)).toMatchObject({
      objects: [{ resource: "named", key: "a" }],
      others: "1",
      granted_ttl: { seconds: "60" },
    });
    const streams = [atLeaf.keepAlive(), atRoot.keepAlive()];
    for (const stream of streams) {
      const [ttlMs, ended] = await stream.renew(lease, "77");
      expect(ttlMs).toBeGreaterThan(55_000);
      expect(ended).toMatch(/There is no such lease/);
    }
    await atLeaf.revoke(lease);
    expect((await atRoot.list({ resource: "hidden" })).items).toEqual([]);
    const gone = { reason: "LEASE_NOT_FOUND" };
    await expect(atLeaf.timeToLive(lease)).rejects.toMatchObject(gone);
    await expect(atLeaf.revoke(lease)).rejects.toMatchObject(gone);
  });

  test("do not end while they are kept alive, though the root is replaced by another, and end in time after that", async () => {
    const tiers = await startTiers();
    const { network, leaf } = tiers;
    let { root } = tiers;
    const client = clientOf(leaf);
    // So long that it outlasts the replacement of the root, on a busy machine too.
    const ttlMs = 20_000;
    const lease = await client.grant(ttlMs / 1_000);
    await client.put({ resource: "named", key: "a", lease });
    const stream = client.keepAlive();
    const keepAlive = async (times: number): Promise<number> => {
      for (let i = 0; i < times; i++) {
        const sentAt = systemClock.now();
        const [outcome] = await stream.renew(lease);
        // While the root is gone nothing is renewed, and nothing is said that is not so.
        if (typeof outcome === "number") expect(outcome).toBeLessThanOrEqual(ttlMs);
        else expect(outcome).toMatch(/did not answer|can't serve/);
        await pause(systemClock, 1_000 - (systemClock.now() - sentAt));
      }
      return systemClock.now();
    };
    await keepAlive(2);
    network.refuse();
    await root.stop();
    root = await started(
      Tier.start({ etcd: tiers.etcd.url, resource: ["things=/things/", "hidden=/hidden/"] }),
    );
    network.aimAt(root.port);
    network.heal();
    await keepAlive(4);
    expect((await client.get({ resource: "named", key: "a" })).object?.lease).toBe(lease);
    const [last] = await stream.renew(lease);
    const renewedAt = systemClock.now();
    await until(async () => (await client.list({ resource: "named" })).items.length === 0);
    const lastedMs = systemClock.now() - renewedAt;
    expect(lastedMs).toBeGreaterThanOrEqual(Number(last) - 50);
    // Nothing renews it by itself: that would be for as long again.
    expect(lastedMs).toBeLessThan(2 * ttlMs);
  });
});

describe("Locks and leaderships through two tiers", () => {
  /** So long that leases outlast the replacement of the root, on a busy machine too. */
  const ttlMs = 20_000;
  const open = (client: Client): Promise<Session> =>
    Session.open(client, { ttlMs, onError: () => {} });
  const campaign = (session: Session, resource: string, identity: string) => {
    const onStartedLeading = async () => {};
    const options = { session, resource, name: "job", identity, onStartedLeading };
    return new LeaderElector(options).campaign();
  };
  /** Waits until the store has begun to count the lease again: it has been renewed at the root that is there now. */
  const untilRenewed = (client: Client, { lease }: Session): Promise<void> => {
    let leastMs = ttlMs;
    return until(async () => {
      const { ttlMs: leftMs } = await client.leases.timeToLive(lease.id);
      leastMs = Math.min(leastMs, leftMs);
      // Sessions renew it after a third of its length; two calls may take different times.
      return leftMs > leastMs + ttlMs / 5;
    });
  };
  const guarded = async (client: Client, resource: string, guard: Compare) => {
    const operations = [{ type: "put", resource, key: "data", value: Buffer.from("1") }] as const;
    return (await client.transaction({ compares: [guard], operations })).succeeded;
  };

  test("are those of the root, survive its replacement by another, and are handed over with rising tokens", async () => {
    const tiers = await startTiers();
    const { network, leaf, etcd } = tiers;
    const client = leaf.client();
    const [atLeaf, second] = [await open(client), await open(leaf.client())];
    const leader = await campaign(atLeaf, "named", "first");
    const lock = await new Mutex(atLeaf, "named", "l").lock();
    let hasSecond = false;
    const campaigning = campaign(second, "named", "second").then((leadership) => {
      hasSecond = true;
      return leadership;
    });
    network.refuse();
    await tiers.root.stop();
    const root = await started(
      Tier.start({ etcd: etcd.url, resource: ["things=/things/", "hidden=/hidden/"] }),
    );
    network.aimAt(root.port);
    network.heal();
    const atRoot = await open(root.client());
    for (const session of [atLeaf, second]) await untilRenewed(client, session);
    expect([leader.isHeld, lock.isHeld, hasSecond]).toEqual([true, true, false]);
    const mutex = new Mutex(atRoot, "things", "l");
    expect(await mutex.tryLock()).toBeUndefined();
    expect(await guarded(client, "named", leader.guard())).toBe(true);

    await Promise.all([leader.unlock(), lock.unlock()]);
    const next = await campaigning;
    expect(next.fencingToken).toBeGreaterThan(leader.fencingToken);
    expect((await mutex.lock()).fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await guarded(client, "named", leader.guard())).toBe(false);
    expect(await guarded(client, "named", next.guard())).toBe(true);
    for (const session of [atLeaf, second, atRoot]) await session.close();
  });
});
