import { Etcd3, type IKeyValue } from "etcd3";
import { afterAll, beforeAll, expect, test } from "vitest";
import { enableAuth, testWithEtcd } from "../etcd/etcd.ts";
import { etcdOfFile } from "../etcd/etcd-of-file.ts";
import { type Front, frontOfFile, startFront, untilReady } from "./front.ts";

const etcdOf = etcdOfFile({ args: ["--bcrypt-cost=4"] });
const frontOf = frontOfFile(async () => startFront([(await etcdOf()).url], { resource: ["all="] }));

let front: Front;
let client: Etcd3;

beforeAll(async () => {
  front = await frontOf();
  await untilReady(front);
  client = new Etcd3({ hosts: front.url });
});

afterAll(() => client.close());

test("etcd3 reads, writes and runs transactions", async () => {
  await client.put("kv/a").value("1");
  expect(await client.get("kv/a").string()).toBe("1");
  const { succeeded } = await client
    .if("kv/a", "Value", "==", "1")
    .then(client.put("kv/b").value("2"))
    .commit();
  expect(succeeded).toBe(true);
  expect(await client.getAll().prefix("kv/").strings()).toEqual({ "kv/a": "1", "kv/b": "2" });
  await client.delete().prefix("kv/");
  expect(await client.getAll().prefix("kv/").keys()).toEqual([]);
});

test("etcd3 watches many prefixes on one stream", async () => {
  const watchers = await Promise.all(
    Array.from({ length: 20 }, (_, i) => client.watch().prefix(`watch/${i}/`).create()),
  );
  const seen = watchers.map(
    (watcher) =>
      new Promise<string>((resolve) =>
        watcher.on("put", ({ key }: IKeyValue) => resolve(key.toString())),
      ),
  );
  await Promise.all(watchers.map((_, i) => client.put(`watch/${i}/a`).value("1")));
  expect(await Promise.all(seen)).toEqual(watchers.map((_, i) => `watch/${i}/a`));
  await Promise.all(watchers.map((watcher) => watcher.cancel()));
});

test("etcd3 keeps leases alive, locks and elects", async () => {
  const lease = client.lease(10);
  await lease.put("lease/a").value("1");
  expect(await lease.keepaliveOnce()).toMatchObject({ TTL: "10" });
  const lock = await client.lock("lock/a").ttl(10).acquire();
  await expect(client.lock("lock/a").ttl(10).acquire()).rejects.toThrow("lock");
  await lock.release();
  const campaign = client.election("elect/a", 10).campaign("me");
  await new Promise<void>((resolve) => campaign.on("elected", resolve));
  expect(await client.election("elect/a").leader()).toBe("me");
  await campaign.resign();
  await lease.revoke();
  expect(await client.get("lease/a").string()).toBeNull();
});

// The last test: it turns authentication on.
testWithEtcd("users")(
  "clients with different users share nothing (etcd issues 16112, 19296, 19033, 22065)",
  async () => {
    const { url } = await etcdOf();
    await enableAuth(url, "r");
    const auth = { username: "root", password: "r" };
    const root = new Etcd3({ hosts: front.url, auth });
    const nobody = new Etcd3({ hosts: front.url });
    try {
      await root.put("auth/a").value("1");
      expect(await root.get("auth/a").string()).toBe("1");
      await expect(nobody.get("auth/a").string()).rejects.toThrow("user name is empty");
      const user = await root.user("ann").create("a");
      const ann = new Etcd3({ hosts: front.url, auth: { username: "ann", password: "a" } });
      await expect(ann.get("auth/a").string()).rejects.toThrow("permission denied");
      expect(await root.get("auth/a").string()).toBe("1");
      ann.close();
      await user.delete();
    } finally {
      root.close();
      nobody.close();
    }
  },
);
