import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { EtcdCluster } from "../faults/etcd-cluster.ts";
import { Tier } from "../relay/tiers.ts";
import { Source } from "../storage/etcd/source.ts";
import { until } from "../testing/patient-until.ts";
import { cluster, DiscoveryClient, type DiscoveryStream, decoded } from "./discovery-client.ts";

const message = "envoy.config.cluster.v3.Cluster";
const flags = {
  resource: ["clusters=/clusters/", "instances=/instances/"],
  xds: ["cds=clusters", "eds=instances"],
};

let etcd: EtcdCluster;

beforeAll(async () => {
  etcd = await EtcdCluster.start();
});

afterAll(async () => {
  await etcd?.stop();
});

/** What a delta client has of clusters: by name, the version. */
function clustersOf({ received }: DiscoveryStream): ReadonlyMap<string, string> {
  const clusters = new Map<string, string>();
  for (const { type, resources, removed } of received) {
    if (type !== "cds") continue;
    for (const { name = "", version = "" } of resources) clusters.set(name, version);
    for (const name of removed) clusters.delete(name);
  }
  return clusters;
}

/** The names in the last state of the world. */
function lastOf({ received }: DiscoveryStream): string {
  const names = received
    .at(-1)
    ?.resources.map(({ bytes }) => (decoded(message, bytes) as { name: string }).name);
  return names?.sort().join() ?? "nothing";
}

function shown(clusters: ReadonlyMap<string, string>): string {
  return [...clusters.keys()].sort().join();
}

describe("Clients of xDS of an etcd that is restored from a backup", () => {
  it("end with what the restored etcd has, and get what differs when they come back", {
    timeout: 240_000,
  }, async () => {
    const [member] = etcd.members;
    const source = new Source({ url: member?.url ?? "" });
    const put = (name: string, more: object = {}) =>
      source.write("/clusters/", [{ type: "put", key: name, value: cluster(name, more) }]);
    const root = await Tier.start({ etcd: member?.url ?? "", ...flags });
    onTestFinished(() => root.stop());
    const relay = await Tier.relay(root.address, { xds: flags.xds });
    onTestFinished(() => relay.stop());
    await put("kept");
    await put("changed");
    await put("removed");
    const backup = await etcd.snapshot();
    // The restored etcd has revisions left below that of the change which is lost: the service writes a key there.
    const fill = async (revision: number): Promise<void> => {
      while ((await source.revision()) < revision) await source.putBytes(Buffer.from("/other"));
    };
    await fill((await source.revision()) + 20);
    const lost = await put("changed", { alt_stat_name: "lost" });
    await put("added");
    await source.write("/clusters/", [{ type: "delete", key: "removed" }]);

    const ports = [root.port, relay.port];
    const deltas = ports.map((port) => new DiscoveryClient(port).delta());
    const states = ports.map((port) => new DiscoveryClient(port).state());
    for (const stream of [...deltas, ...states]) stream.send({ type: "cds" });
    const before = "added,changed,kept";
    await until("all before", () => deltas.every((each) => shown(clustersOf(each)) === before));
    await until("all before", () => states.every((each) => lastOf(each) === before));
    const versions = Object.fromEntries(clustersOf(deltas[0] as DiscoveryStream));
    expect(versions["changed"]).toMatch(new RegExp(`^${lost}-`));

    await etcd.restore(backup);
    const options = { timeoutMs: 60_000 };
    const isOfOther = (clusters: ReadonlyMap<string, string>): boolean =>
      clusters.get("kept") !== versions["kept"];
    await until(
      "the root's restore",
      () => isOfOther(clustersOf(deltas[0] as DiscoveryStream)),
      options,
    );
    await fill(lost - 1);
    // The same key at the same revision, in the other history.
    expect(await put("changed", { alt_stat_name: "found" })).toBe(lost);
    await fill(lost + 10);

    const after = "changed,kept,removed";
    const isNew = (clusters: ReadonlyMap<string, string>): boolean =>
      ["changed", "kept"].every((name) => clusters.get(name) !== versions[name]);
    await until(
      () => deltas.map((each) => shown(clustersOf(each))).join("; "),
      () =>
        deltas.map(clustersOf).every((clusters) => shown(clusters) === after && isNew(clusters)),
      options,
    );
    await until(
      () => states.map(lastOf).join("; "),
      () => states.every((each) => lastOf(each) === after),
      options,
    );
    for (const port of ports) {
      const back = new DiscoveryClient(port).delta();
      back.send({ type: "cds", versions });
      await until("what differs", () => back.received.length > 0, options);
      const { resources, nonce } = await back.response(0);
      // Also what is as before, since nothing shows that.
      expect(resources.map(({ name }) => name).sort()).toEqual(["changed", "kept", "removed"]);
      back.send({ type: "cds", nonce });
      await until("the removal", () => back.received.length > 1, options);
      expect(back.received.slice(1)).toMatchObject([{ resources: [], removed: ["added"] }]);
      const changed = resources.find(({ name }) => name === "changed");
      expect(changed?.version).toMatch(new RegExp(`^${lost}-`));
      expect(changed?.version).not.toBe(versions["changed"]);
      expect(decoded(message, changed?.bytes ?? Buffer.of())).toMatchObject({
        alt_stat_name: "found",
      });
    }
  });
});
