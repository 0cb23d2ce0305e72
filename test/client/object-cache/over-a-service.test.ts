import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/connect.ts";
import { ObjectCache } from "../../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { serveThings } from "../../server/served.ts";
import { CachedServer } from "../cached-server.ts";
import { ObservedClient } from "./observed-client.ts";

interface Thing {
  readonly n: number;
  readonly frozen?: boolean;
}

const json = (thing: Thing) => new TextEncoder().encode(JSON.stringify(thing));
const absent = expect.objectContaining({ reason: "OBJECT_NOT_FOUND" });

/** A cache over a service at this port. */
function cacheAt(port: number) {
  const client = connect({ address: `127.0.0.1:${port}`, random: () => 0 });
  const observed = new ObservedClient(client);
  const errors: string[] = [];
  const cache = new ObjectCache<Thing>({
    client: observed,
    resource: "things",
    codec: jsonValues<Thing>(),
    isImmutable: ({ value }) => value.frozen === true,
    // The speed of the machine is not what is tested.
    syncTimeoutMs: 80_000,
    random: () => 0,
    onError: (error) => errors.push("reason" in error ? String(error.reason) : error.name),
  });
  onTestFinished(async () => {
    await cache.close();
    client.close();
  });
  return { cache, observed, errors };
}

/** The number of connections to this port since. */
function countConnections(port: number): () => number {
  let connections = 0;
  const onSocket = (message: unknown): void => {
    const { socket } = message as { readonly socket: Socket };
    if (socket.localPort === port) connections++;
  };
  subscribe("net.server.socket", onSocket);
  onTestFinished(() => {
    unsubscribe("net.server.socket", onSocket);
  });
  return () => connections;
}

it("A thousand objects are watched on one stream, which ends with the last of them.", async () => {
  const { storage, server, recorder } = await serveThings();
  const keys = Array.from({ length: 1_000 }, (_, n) => `ns-${n % 10}/thing-${n}`);
  for (const [n, key] of keys.entries()) await storage.put({ key, value: json({ n }) });
  const connections = countConnections(server.port);
  const { cache, observed } = cacheAt(server.port);
  for (const key of keys) cache.addReference(key);
  const objects = await Promise.all(keys.map((key) => cache.get(key)));
  expect(objects.map(({ value }) => value.n)).toEqual(keys.map((_, n) => n));
  expect([recorder.open, server.openStreams, connections()]).toEqual([1, 1_001, 1]);
  const [first = ""] = keys;
  const { revision } = await storage.put({ key: first, value: json({ n: -1 }) });
  await observed.untilTaken(first, revision);
  expect((await cache.get(first)).value).toEqual({ n: -1 });
  for (const key of keys) cache.deleteReference(key);
  await recorder.untilEnded(1);
  expect([recorder.open, cache.size, connections()]).toEqual([0, 0, 1]);
});

it("An immutable object's stream ends, and the object is not requested again.", async () => {
  const { storage, server, recorder } = await serveThings();
  await storage.put({ key: "a", value: json({ n: 1, frozen: true }) });
  const { cache } = cacheAt(server.port);
  cache.addReference("a");
  expect((await cache.get("a")).value).toEqual({ n: 1, frozen: true });
  await recorder.untilEnded(1);
  await storage.delete({ key: "a" });
  expect((await cache.get("a")).value.n).toBe(1);
  expect(recorder.calls.length).toBe(1);
});

it("Writes, deletions and creations arrive, each after it is applied.", async () => {
  const { storage, server } = await serveThings();
  const { cache, observed } = cacheAt(server.port);
  cache.addReference("a");
  await expect(cache.get("a")).rejects.toEqual(absent);
  for (const n of [1, 2]) {
    const { revision } = await storage.put({ key: "a", value: json({ n }) });
    await observed.untilTaken("a", revision);
    expect((await cache.get("a")).value.n).toBe(n);
  }
  const { revision } = await storage.delete({ key: "a" });
  await observed.untilTaken("a", revision);
  await expect(cache.get("a")).rejects.toEqual(absent);
});

it("A service that returns with another history is watched again, and until then the old state is served.", async () => {
  const first = new MemoryStorage({ clock: systemClock });
  for (const n of [1, 2, 3]) await first.put({ key: "a", value: json({ n }) });
  await first.put({ key: "gone", value: json({ n: 4 }) });
  const before = await CachedServer.over(first);
  const { port } = before;
  const { cache, observed, errors } = cacheAt(port);
  for (const key of ["a", "gone"]) cache.addReference(key);
  expect((await cache.get("a")).value.n).toBe(3);
  expect((await cache.get("gone")).value.n).toBe(4);
  await before.close();
  expect((await cache.get("a")).value.n).toBe(3);
  const second = new MemoryStorage({ clock: systemClock });
  await second.put({ key: "a", value: json({ n: 30 }) });
  const after = await CachedServer.over(second, {}, port);
  onTestFinished(() => after.close());
  await Promise.all(["a", "gone"].map((key) => observed.untilBegun(key, 2)));
  expect((await cache.get("a")).value.n).toBe(30);
  await expect(cache.get("gone")).rejects.toEqual(absent);
  expect(errors).toEqual(["HISTORY_CHANGED", "HISTORY_CHANGED"]);
});
