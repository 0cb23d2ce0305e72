import { setImmediate as nextTurn } from "node:timers/promises";
import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/connect.ts";
import { waitForRevision } from "../../../src/client/informer/revision-wait.ts";
import { bytes, jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { CachedServer } from "../cached-server.ts";
import { serveCounters, utf8 } from "../counters.ts";
import { serveResources } from "../served-resources.ts";
import { Informed, texts } from "./informed.ts";
import { outcome } from "./outcome.ts";

const etcdOf = etcdOfFile();

describe("A wait of an informer for a revision", () => {
  it("makes a put visible to reads of the indexer and of listers", async () => {
    const { client } = await serveResources(await etcdOf(), ["pods"]);
    const pods = client.resource("pods", jsonValues<{ node: string }>());
    await using informer = pods.informer({ indexers: { node: ({ value }) => value.node } });
    informer.start();
    for (let i = 0; i < 50; i++) {
      const { modRevision } = await pods.put(`ns/${i}`, { node: `n${i}` });
      await informer.waitForRevision(modRevision);
      expect(informer.indexer.indexKeys("node", `n${i}`)).toEqual([`ns/${i}`]);
      expect(informer.lister().namespace("ns").list()).toHaveLength(i + 1);
    }
  });

  it("ends soon for an informer whose own resource and scope have no event", async () => {
    const { client } = await serveResources(await etcdOf(), ["pods", "nodes"]);
    const pods = client.resource("pods", bytes);
    await using quiet = client.resource("nodes", bytes).informer();
    await using narrow = pods.informer({ scope: { key: "other" } });
    const subscription = client.subscribe();
    await using subscribed = subscription.resource("nodes", bytes).informer();
    const informers = [quiet, narrow, subscribed];
    for (const informer of informers) informer.start();
    await Promise.all(informers.map((informer) => informer.waitForSync()));
    for (let i = 0; i < 20; i++) {
      const { modRevision } = await pods.put("a", utf8(`${i}`));
      // A bookmark of an idle watch comes once in 60 s.
      await waitForRevision(informers, modRevision, { timeoutMs: 30_000 });
      for (const { revision } of informers) expect(revision).toBeGreaterThanOrEqual(modRevision);
    }
    subscription.close();
  });

  it("survives a watch that breaks", async () => {
    const { client, relay } = await serveResources(await etcdOf(), ["pods", "nodes"]);
    await using nodes = client.resource("nodes", bytes).informer({ onWatchError: () => {} });
    nodes.start();
    await nodes.waitForSync();
    const { revision } = await client.put("pods", "a", utf8("1"));
    relay.cut();
    await nodes.waitForRevision(revision);
    expect(nodes.revision).toBeGreaterThanOrEqual(revision);
  });

  it("waits for the calls of handlers if that is asked for", async () => {
    const { things } = await serveCounters();
    await using informer = things.informer();
    const called: string[] = [];
    const gate = Promise.withResolvers<void>();
    informer.addEventHandler({
      onChange: async (key) => {
        await gate.promise;
        called.push(key);
      },
    });
    informer.start();
    const { modRevision } = await things.put("a", { n: 1 });
    await informer.waitForRevision(modRevision);
    const handled = informer.waitForRevision(modRevision, { handlers: true });
    expect([await outcome(handled), called]).toEqual(["pending", []]);
    gate.resolve();
    await handled;
    expect(called).toEqual(["a"]);
  });

  it("ends for a handler that is called for newer changes without a pause", async () => {
    const informed = await Informed.start();
    const gate = Promise.withResolvers<void>();
    let calls = 0;
    informed.informer.addEventHandler({
      onChange: async () => {
        await gate.promise;
        // Each call makes another one necessary, so that its queue always has 20 notifications.
        if (++calls < 200) await informed.store.put({ key: `${calls}`, value: utf8("x") });
        await nextTurn();
      },
    });
    for (let i = 0; i < 20; i++) await informed.store.put({ key: `first-${i}`, value: utf8("x") });
    const revision = await informed.store.currentRevision();
    let callsThen: number | undefined;
    const handled = informed.informer.waitForRevision(revision, { handlers: true }).then(() => {
      callsThen = calls;
    });
    await informed.clock.settle();
    gate.resolve();
    while (calls < 200) await informed.clock.settle();
    await informed.clock.settle();
    await handled;
    expect(callsThen).toBeGreaterThanOrEqual(20);
    expect(callsThen).toBeLessThan(40);
  });

  it("ends while keys arrive as fast as they are applied", async () => {
    let decoded = 0;
    let revisionThen: number | undefined;
    const informed = new Informed({
      codec: {
        ...texts,
        decode: (value, key) => {
          // Longer than a time slice, and meanwhile another key arrives.
          informed.clock.advance(10);
          if (++decoded === 20) revisionThen = informed.informer.revision;
          if (decoded < 200) void informed.store.put({ key: `k${decoded}`, value: utf8("x") });
          return texts.decode(value, key);
        },
      },
    });
    await informed.start();
    for (const key of ["a", "b", "c"]) await informed.store.put({ key, value: utf8("x") });
    const revision = await informed.store.currentRevision();
    const reached = informed.informer.waitForRevision(revision, { timeoutMs: 1_000_000 });
    await informed.clock.settle();
    await reached;
    expect(revisionThen).toBeGreaterThanOrEqual(revision);
    expect(decoded).toBeGreaterThanOrEqual(200);
  });

  it("rejects when the store is restored meanwhile", async () => {
    const { informer, restore, revision } = await beforeRestore();
    const waiting = informer.waitForRevision(revision + 1, { timeoutMs: 30_000 });
    const rejected = expect(waiting).rejects.toMatchObject({ reason: "HISTORY_CHANGED" });
    // The store that follows has such a revision, too.
    await restore(100);
    await rejected;
  });

  it("rejects for a revision of before a restore, and not for the revisions after it", async () => {
    const { client, informer, restore, revision } = await beforeRestore();
    await restore();
    const { revision: low } = await client.put("things", "b", utf8("1"));
    expect(low).toBeLessThan(revision);
    await expect
      .poll(() => informer.waitForRevision(low).then(() => [...informer.indexer.keys()]))
      .toEqual(["b"]);
    await expect(informer.waitForRevision(revision, { timeoutMs: 30_000 })).rejects.toMatchObject({
      reason: "HISTORY_CHANGED",
    });
  });

  it("is not over before the whole list of the new history is applied", async () => {
    const { informer, restore } = await beforeRestore(() => {
      const until = performance.now() + 1;
      while (performance.now() < until);
    });
    const before = informer.historyId;
    await restore(15, (i) => `${i}`);
    while (informer.historyId === before) await nextTurn();
    // Lower than the revision of before.
    await informer.waitForRevision(16);
    expect(informer.indexer.size).toBe(15);
  });

  it("rejects after its time, with why the informer receives nothing", async () => {
    const { client, relay } = await serveResources(await etcdOf(), ["pods"]);
    await using pods = client.resource("pods", bytes).informer({ onWatchError: () => {} });
    const { revision } = await client.put("pods", "a", utf8("1"));
    await expect(pods.waitForRevision(revision, { timeoutMs: 100 })).rejects.toMatchObject({
      reason: "REVISION_TOO_NEW",
    });
    relay.refuse();
    pods.start();
    await expect.poll(() => pods.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    await expect(pods.waitForRevision(revision, { timeoutMs: 100 })).rejects.toMatchObject({
      reason: "UPSTREAM_UNAVAILABLE",
      message: expect.stringContaining(`revision ${revision} in 100 ms`),
    });
  });

  it("rejects when its signal is aborted, and when the informer is stopped", async () => {
    const { informer } = new Informed();
    const reason = new Error("No longer.");
    const signal = AbortSignal.abort(reason);
    await expect(informer.waitForRevision(1, { signal })).rejects.toBe(reason);
    const stopped = expect(informer.waitForRevision(1)).rejects.toThrow("was stopped");
    await informer.stop();
    await stopped;
    await expect(informer.waitForRevision(1)).rejects.toThrow("was stopped");
    await expect(informer.waitForRevision(0.5)).rejects.toThrow("whole number");
    await expect(informer.waitForRevision(1, { timeoutMs: Number.NaN })).rejects.toThrow(
      "timeoutMs is NaN",
    );
  });
});

/** An informer over a service, and what replaces the store of that by another one, of low revisions. */
async function beforeRestore(onDecode: () => void = () => {}) {
  const first = new MemoryStorage({ clock: systemClock });
  for (let i = 0; i < 20; i++) await first.put({ key: "a", value: utf8(`${i}`) });
  let server = await CachedServer.over(first);
  const { port } = server;
  const client = connect({ address: server.address });
  const decode = (value: Uint8Array): Uint8Array => {
    onDecode();
    return value;
  };
  const things = client.resource("things", { ...bytes, decode });
  const informer = things.informer({ onWatchError: () => {} });
  onTestFinished(async () => {
    await informer.stop();
    client.close();
    await server.close();
  });
  informer.start();
  await informer.waitForSync();
  const restore = async (writes: number = 0, keyOf = (_: number) => "c"): Promise<void> => {
    await server.close();
    const store = new MemoryStorage({ clock: systemClock });
    for (let i = 0; i < writes; i++) await store.put({ key: keyOf(i), value: utf8(`${i}`) });
    server = await CachedServer.over(store, {}, port);
  };
  return { client, informer, restore, revision: informer.revision ?? 0 };
}
