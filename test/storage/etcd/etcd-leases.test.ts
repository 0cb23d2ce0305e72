import { afterEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { hasReason } from "../../../src/base/errors.ts";
import type { EtcdClient } from "../../../src/etcd/client/etcd-client.ts";
import { OwnKeys } from "../../../src/etcd/client/own-keys.ts";
import { EtcdLeases, namesByPrefix } from "../../../src/storage/etcd/etcd-leases.ts";
import { type Etcd, startEtcd } from "../../etcd/etcd.ts";
import { EtcdCluster } from "../../faults/etcd-cluster.ts";
import { until } from "../../until.ts";
import { clientOf, Source } from "./source.ts";

const closings: (() => Promise<void>)[] = [];

afterEach(async () => {
  for (const close of closings.splice(0).reverse()) await close();
});

function leasesOf(endpoints: readonly string[]): { leases: EtcdLeases; client: EtcdClient } {
  const client = clientOf({ url: "" }, { endpoints, random: () => 0 });
  const leases = new EtcdLeases(
    client,
    namesByPrefix([{ name: "things", prefix: "/things/" }], client.history.own),
  );
  closings.push(async () => {
    leases.close();
    await client.close();
  });
  return { leases, client };
}

async function started(): Promise<Etcd> {
  const etcd = await startEtcd();
  closings.push(() => etcd.stop());
  return etcd;
}

/** What etcd has counted of one method of gRPC. */
async function callsOf(
  etcd: Etcd,
  what: "started" | "msg_received",
  method: string,
): Promise<number> {
  const text = await (await fetch(`${etcd.url}/metrics`)).text();
  const line = new RegExp(`^grpc_server_${what}_total\\{[^}]*"${method}"[^}]*\\} (\\d+)$`, "m");
  return Number(line.exec(text)?.[1]);
}

const unavailable = expect.objectContaining({ reason: "UPSTREAM_UNAVAILABLE" });

test("The service's own keys are of no resource, also below its prefix", () => {
  const own = new OwnKeys(Buffer.from("/all/history"));
  const nameOf = namesByPrefix([{ name: "all", prefix: "/all/" }], own);
  const named = ["x", "history", "history-requests/x"].map((key) =>
    nameOf(Buffer.from(`/all/${key}`)),
  );
  expect(named).toEqual([{ resource: "all", key: "x" }, undefined, undefined]);
});

describe("The leases of etcd", () => {
  test("have random ids with up to 63 bits", async () => {
    const { leases } = leasesOf([(await started()).url]);
    const granted = await Promise.all(Array.from({ length: 32 }, () => leases.grant(60)));
    for (const { lease, ttlSeconds } of granted) {
      expect(lease > 0n && lease < 2n ** 63n).toBe(true);
      expect(ttlSeconds).toBe(60);
    }
    // etcd's own have the same first bytes, those of the member.
    expect(new Set(granted.map(({ lease }) => lease >> 55n)).size).toBeGreaterThan(8);
  });

  test("are all kept alive on one stream", async () => {
    const etcd = await started();
    const { leases } = leasesOf([etcd.url]);
    const granted = await Promise.all(Array.from({ length: 50 }, () => leases.grant(60)));
    for (let i = 0; i < 3; i++) {
      const askedAt = systemClock.now();
      const asked = granted.map(({ lease }) => leases.keepAlive([lease]));
      const outcomes = await Promise.all(asked);
      // From now on: the time since it was asked for may be missing.
      const leastMs = 60_000 - (systemClock.now() - askedAt);
      for (const [ttlMs] of outcomes) expect(ttlMs).toBeGreaterThanOrEqual(leastMs);
    }
    expect(await callsOf(etcd, "started", "LeaseKeepAlive")).toBe(1);
  });

  test("cost etcd one renewal each, however many ask for them at the same time", async () => {
    const etcd = await started();
    const { leases } = leasesOf([etcd.url]);
    const granted = await Promise.all([leases.grant(60), leases.grant(60)]);
    const ids = granted.map(({ lease }) => lease);
    const asked = Array.from({ length: 100 }, () => leases.keepAlive(ids));
    for (const outcomes of await Promise.all(asked)) {
      expect(outcomes).toEqual([expect.any(Number), expect.any(Number)]);
    }
    expect(await callsOf(etcd, "msg_received", "LeaseKeepAlive")).toBe(2);
  });

  test("name what is attached, and count what is of no resource", async () => {
    const etcd = await started();
    const { leases } = leasesOf([etcd.url]);
    const { lease } = await leases.grant(60);
    const source = new Source(etcd);
    const keys = [Buffer.from("/things/ä"), Buffer.from("/things/"), Buffer.from("/other/a")];
    for (const key of [...keys, Buffer.from([...Buffer.from("/things/"), 0xff])]) {
      await source.call("kv/put", { key: key.toString("base64"), lease: String(lease) });
    }
    expect(await leases.timeToLive(lease, true)).toMatchObject({
      objects: [{ resource: "things", key: "ä" }],
      others: 3,
    });
    expect(await leases.timeToLive(lease, false)).toMatchObject({ objects: [], others: 0 });
  });

  test("are kept alive again once an etcd that was killed runs again, and nothing is claimed before", async () => {
    const etcd = await started();
    const { leases } = leasesOf([etcd.url]);
    const { lease } = await leases.grant(60);
    expect(await leases.keepAlive([lease])).toEqual([expect.any(Number)]);
    await etcd.kill();
    const askedAt = systemClock.now();
    expect(await leases.keepAlive([lease, 77n])).toEqual([unavailable, unavailable]);
    // It has waited for etcd. How long at most is exact in test/storage/lease-renewals.test.ts, by a clock of its own.
    expect(systemClock.now() - askedAt).toBeGreaterThan(4_900);
    await etcd.start();
    expect(await leases.keepAlive([lease, 77n])).toEqual([
      expect.any(Number),
      expect.objectContaining({ reason: "LEASE_NOT_FOUND" }),
    ]);
  });

  test.each<[string, (cluster: EtcdCluster) => Promise<void>]>([
    ["is killed", async ({ members: [first] }) => first?.kill()],
    ["answers nothing any more", async ({ members: [first] }) => first?.pause()],
  ])("are kept alive within their length at another member when theirs %s", async (_, fail) => {
    const cluster = await EtcdCluster.start({ size: 3 });
    closings.push(() => cluster.stop());
    const { leases } = leasesOf(cluster.members.map(({ url }) => url));
    const { lease } = await leases.grant(20);
    expect(await leases.keepAlive([lease])).toEqual([expect.any(Number)]);
    await fail(cluster);
    // One that has failed may have been a leader as well, and each call ends after 5 s: sessions repeat them too.
    let outcome: number | Error | undefined;
    await until(async () => {
      [outcome] = await leases.keepAlive([lease]);
      return !hasReason(outcome, "UPSTREAM_UNAVAILABLE");
    });
    // Later etcd would say that there is no such lease.
    expect(outcome).toEqual(expect.any(Number));
  });
});
