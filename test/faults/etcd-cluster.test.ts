import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { EtcdCluster } from "./etcd-cluster.ts";
import { untilSeen } from "./patience.ts";

const base64 = (text: string): string => Buffer.from(text).toString("base64");

async function valueAt(cluster: EtcdCluster, key: string): Promise<string | undefined> {
  const { kvs } = await cluster.call("kv/range", { key: base64(key) });
  const [kv] = (kvs ?? []) as { readonly value: string }[];
  return kv === undefined ? undefined : Buffer.from(kv.value, "base64").toString();
}

function put(cluster: EtcdCluster, key: string, value: string): Promise<unknown> {
  return cluster.call("kv/put", { key: base64(key), value: base64(value) });
}

describe("A cluster of three", () => {
  let cluster: EtcdCluster;

  beforeAll(async () => {
    cluster = await EtcdCluster.start({ size: 3 });
  });

  afterAll(() => cluster?.stop());

  it("has its leader moved", async () => {
    const before = await cluster.leader();
    await cluster.moveLeader();
    expect(await cluster.leader()).not.toBe(before);
  });

  it("continues without a killed member, and accepts it again", async () => {
    await put(cluster, "a", "1");
    await cluster.kill(await cluster.leader());
    await put(cluster, "a", "2");
    await cluster.heal();
    for (const member of cluster.members) {
      await untilSeen(`${member.name} to have caught up`, async () => {
        const { kvs } = await member.call("kv/range", { key: base64("a"), serializable: true });
        const [kv] = kvs as { readonly value: string }[];
        return kv?.value === base64("2") ? true : undefined;
      });
    }
  });

  it("leaves a partitioned member without a leader, and accepts it again", async () => {
    const cutOff = await cluster.leader();
    cluster.cutOff(cutOff);
    await put(cluster, "a", "3");
    expect(await cluster.leader()).not.toBe(cutOff);
    await untilSeen("the one that is cut off to notice", async () =>
      (await cutOff.status()).leader === "0" ? true : undefined,
    );
    await cluster.heal();
    await untilSeen("the one that was cut off to be back", async () =>
      (await cutOff.status()).leader === "0" ? undefined : true,
    );
  });

  it("is restored from a snapshot, at the same addresses", async () => {
    await put(cluster, "a", "before");
    const snapshot = await cluster.snapshot();
    expect(snapshot.revision).toBe(await cluster.revision());
    await put(cluster, "a", "after");
    await cluster.restore(snapshot);
    expect(await valueAt(cluster, "a")).toBe("before");
    expect(await cluster.revision()).toBe(snapshot.revision);
    await put(cluster, "a", "anew");
  });
});

describe("A cluster of one", () => {
  it("with a password is called as root, also after it was killed", async () => {
    const cluster = await EtcdCluster.start({ rootPassword: "secret" });
    try {
      await put(cluster, "a", "1");
      for (const member of cluster.members) await cluster.kill(member);
      await cluster.heal();
      expect(await valueAt(cluster, "a")).toBe("1");
    } finally {
      await cluster.stop();
    }
  });
});
