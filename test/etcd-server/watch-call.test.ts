import { describe, expect, onTestFinished, test } from "vitest";
import type { MemoryStoreOptions } from "../../src/storage/memory/memory-store.ts";
import { WatchClient } from "../etcd-api/watch-client.ts";
import { type Served, serveStore } from "./served-store.ts";

async function served(
  options: Partial<MemoryStoreOptions> = {},
  progressIntervalMs?: number,
): Promise<Served> {
  const started = await serveStore(options, progressIntervalMs);
  onTestFinished(() => started.close());
  return started;
}

async function put({ store }: Served, key: string, value: Uint8Array): Promise<number> {
  const { revision } = await store.update((draft) => draft.put(key, value, 0n));
  return revision;
}

const value = Buffer.from("v");
const all = { 1: Buffer.of(0), 2: Buffer.of(0) };

describe("A watch stream of the embedded store", () => {
  test("has headers at once, without those of its request", async () => {
    const started = await served();
    const watch = new WatchClient(started.client, { token: "secret" });
    watch.create(all);
    await watch.until((responses) => responses.length === 1);
    expect(watch.call.headers).toMatchObject({ ":status": 200 });
    expect(watch.call.headers).not.toHaveProperty("token");
  });

  test("answers a progress request when all of its watches were sent everything", async () => {
    const started = await served();
    const watch = new WatchClient(started.client);
    watch.create(all);
    watch.create({ 1: "a" });
    await watch.until((responses) => responses.length === 2);
    let revision = 0;
    for (let i = 0; i < 100; i++) revision = await put(started, "a", value);
    watch.requestProgress();
    await watch.until((responses) => responses.some(({ id }) => id === "-1"));
    const [progress] = watch.responses.filter(({ id }) => id === "-1");
    expect(progress?.revision).toBe(revision);
    const before = watch.responses.slice(0, watch.responses.indexOf(progress as never));
    for (const id of ["0", "1"]) {
      const events = before.filter((each) => each.id === id).flatMap((each) => each.events);
      expect(events).toHaveLength(100);
    }
  });

  test("answers a progress request although a watch of a compacted revision is created meanwhile", async () => {
    const started = await served();
    for (let i = 0; i < 10; i++) await put(started, "a", value);
    await started.store.compact(5);
    const watch = new WatchClient(started.client);
    watch.create(all);
    await watch.until((responses) => responses.length === 1);
    watch.requestProgress();
    watch.create({ ...all, 3: 2 });
    await watch.until((responses) => responses.some(({ canceled }) => canceled));
    await watch.until((responses) => responses.some(({ id }) => id === "-1"));
  });

  test("reports the progress of an idle watch that asked for it, and of no other", async () => {
    const started = await served({}, 50);
    const watch = new WatchClient(started.client);
    watch.create({ 1: "a", 4: true });
    watch.create({ 1: "a" });
    const revision = await put(started, "b", value);
    await watch.until((responses) => responses.length === 3);
    expect(watch.responses[2]).toMatchObject({ id: "0", created: false, events: [], revision });
  });

  test("sends one revision in fragments where the client asks for that", async () => {
    const started = await served();
    const large = Buffer.alloc(1_000_000);
    for (let i = 0; i < 5; i++) await put(started, `large/${i}`, large);
    const watch = new WatchClient(started.client);
    watch.create({ ...all, 6: true, 8: true });
    await watch.until((responses) => responses.length === 1);
    await started.store.update((draft) => {
      for (let i = 0; i < 5; i++) draft.delete(`large/${i}`);
    });
    await watch.until(() => watch.eventsOf().length === 5);
    const fragments = watch.responses.slice(1).map(({ fragment }) => fragment);
    expect(fragments).toEqual([true, true, false]);
  });

  test("reads for a slow client from the history, and ends its watch when that is compacted", async () => {
    const started = await served({ maxLogRevisions: 50 });
    const slow = new WatchClient(started.client);
    slow.create(all);
    await slow.until((responses) => responses.length === 1);
    slow.call.stream.pause();
    const other = new WatchClient(started.connect());
    other.create(all);
    await other.until((responses) => responses.length === 1);
    const size = 64 * 1024;
    for (let i = 1; i <= 300; i++) {
      await put(started, "a", Buffer.alloc(size));
      await other.until(() => other.eventsOf().length === i);
    }
    slow.call.stream.resume();
    await slow.until((responses) => responses.some(({ canceled }) => canceled));
    expect(slow.responses.at(-1)).toMatchObject({ canceled: true, compactRevision: 252 });
    // The windows of the connection, what was not accepted, and a batch.
    expect(slow.eventsOf().length).toBeLessThan(50);
  });

  test("ends with etcd's error when the store is closed", async () => {
    const started = await served();
    const watch = new WatchClient(started.client);
    watch.create(all);
    await watch.until((responses) => responses.length === 1);
    watch.call.halfClose();
    await started.store.close();
    const { trailers } = await watch.call.response;
    expect(trailers).toMatchObject({ "grpc-status": "14" });
    expect(decodeURIComponent(String(trailers?.["grpc-message"]))).toBe(
      "etcdserver: server stopped",
    );
  });
});
