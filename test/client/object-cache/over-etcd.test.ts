import { expect, it, onTestFinished } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { ObjectCache } from "../../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { EtcdStorage } from "../../../src/storage/etcd/etcd-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { clientOf, newPrefix, Source } from "../../storage/etcd/source.ts";
import { CachedServer } from "../cached-server.ts";
import { ObservedClient } from "./observed-client.ts";

const etcdOf = etcdOfFile();
const absent = expect.objectContaining({ reason: "OBJECT_NOT_FOUND" });

/** A service over etcd that can be stopped and started again, and a cache with references to `keys`. */
async function restartable(...keys: readonly string[]) {
  const etcd = await etcdOf();
  const etcdClient = clientOf(etcd);
  const source = new Source(etcd);
  const prefix = newPrefix();
  const put = (key: string, n: number) =>
    source.write(prefix, [{ type: "put", key, value: Buffer.from(String(n)) }]);
  const remove = (key: string) => source.write(prefix, [{ type: "delete", key }]);
  for (const [n, key] of keys.entries()) await put(key, n);
  const start = (port?: number) =>
    CachedServer.over(new EtcdStorage(etcdClient, { prefix }), {}, port);
  let server = await start();
  const { port } = server;
  const client = connect({ address: server.address, random: () => 0 });
  const observed = new ObservedClient(client);
  const errors: string[] = [];
  const interruptions: string[] = [];
  const cache = new ObjectCache<number>({
    client: observed,
    resource: "things",
    codec: jsonValues<number>(),
    syncTimeoutMs: 80_000,
    random: () => 0,
    onError: (error) => errors.push("reason" in error ? String(error.reason) : error.name),
    onInterruption: (_, key) => interruptions.push(key),
  });
  for (const key of keys) cache.addReference(key);
  for (const [n, key] of keys.entries()) expect((await cache.get(key)).value).toBe(n);
  onTestFinished(async () => {
    await cache.close();
    client.close();
    await server.close();
    await etcdClient.close();
  });
  return {
    ...{ source, put, remove, cache, observed, errors, interruptions },
    stop: () => server.close(),
    start: async () => {
      server = await start(port);
    },
  };
}

it("After a restart of the service the watches continue, and changes in between are not missed.", async () => {
  const { put, remove, cache, observed, errors, interruptions, stop, start } = await restartable(
    "changed",
    "removed",
    "same",
  );
  await stop();
  const changedAt = await put("changed", 10);
  const removedAt = await remove("removed");
  expect((await cache.get("changed")).value).toBe(0);
  expect((await cache.get("removed")).value).toBe(1);
  await start();
  await observed.untilTaken("changed", changedAt);
  await observed.untilTaken("removed", removedAt);
  expect((await cache.get("changed")).value).toBe(10);
  await expect(cache.get("removed")).rejects.toEqual(absent);
  expect((await cache.get("same")).value).toBe(2);
  expect(errors).toEqual([]);
  expect(new Set(interruptions)).toEqual(new Set(["changed", "removed", "same"]));
});

it("A watch whose events were compacted while the service was away is started again.", async () => {
  const { put, remove, source, cache, observed, errors, stop, start } = await restartable(
    "changed",
    "removed",
  );
  await stop();
  await remove("removed");
  const newest = await put("changed", 10);
  await source.compact(newest);
  await start();
  await observed.untilTaken("changed", newest);
  await observed.untilTaken("removed", newest);
  expect((await cache.get("changed")).value).toBe(10);
  await expect(cache.get("removed")).rejects.toEqual(absent);
  expect(new Set(errors)).toEqual(new Set(["REVISION_TOO_OLD"]));
});
