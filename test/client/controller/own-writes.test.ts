import { describe, expect, it, onTestFinished } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { connect } from "../../../src/client/connect.ts";
import { controller } from "../../../src/client/controller/controller.ts";
import { WrittenRevisions } from "../../../src/client/controller/written-revisions.ts";
import { bytes } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { CachedServer } from "../cached-server.ts";
import { serveCounters, utf8 } from "../counters.ts";
import { setUpMetrics } from "../work-queue/metered.ts";
import { Reconciled, run, serve } from "./controlled.ts";

const etcdOf = etcdOfFile();

describe("A reconcile sees what an earlier one of its key has written", () => {
  it("so that it does not create an object twice", async () => {
    const { services, pods, direct, relay } = await serve(await etcdOf());
    const writer = direct.resource("pods", pods.codec);
    const reconciled = new Reconciled();
    let created = 0;
    const controlled = controller({
      for: services,
      owns: [{ source: pods, owner: ({ value }) => value.service }],
      workers: 4,
      async reconcile(key, { lister }) {
        const own = lister(pods)
          .list()
          .filter(({ value }) => value.service === key);
        if (own.length === 0) {
          await writer.put(`pod-${created++}`, { service: key });
          // It is due again before its own event has arrived.
          controlled.enqueue(key);
        }
        reconciled.add(key);
      },
    });
    run(controlled);
    // Writes are faster than events.
    relay.delay(20);
    const keys = Array.from({ length: 5 }, (_, i) => `s-${i}`);
    for (const key of keys) await services.put(key, { selector: "" });
    for (const key of keys) await reconciled.times(key, 2);
    expect(created).toBe(keys.length);
  });

  it("also if it has thrown after the write, which was of no source of the controller", async () => {
    const read = setUpMetrics();
    const { services, pods, endpoints } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const behind: unknown[] = [];
    let written = 0;
    const sources = [services.sharedInformer(), pods.sharedInformer()] as const;
    run(
      controller({
        for: sources[0],
        watches: [{ source: sources[1], keys: () => [] }],
        onError: () => {},
        async reconcile(key) {
          for (const { revision = 0, name } of sources) {
            if (revision < written) behind.push([name, revision, written]);
          }
          ({ modRevision: written } = await endpoints.put(key, { pods: [] }));
          reconciled.add(key);
          if (reconciled.keys.length < 6) throw new Error("Again.");
        },
      }),
    );
    await services.put("a", { selector: "" });
    await reconciled.times("a", 6);
    expect(behind).toEqual([]);
    const waits = (await read())["watch_fanout_client_controller_cache_waits"];
    expect(waits).toEqual([["services", 5]]);
  });

  it("and does not wait for the writes of others, nor for those of another store", async () => {
    const { services } = await serve(await etcdOf());
    const { things, store } = await serveCounters();
    // Its revisions are higher.
    for (let i = 0; i < 1_000; i++) await store.put({ key: "x", value: utf8(`${i}`) });
    const reconciled = new Reconciled();
    const errors: unknown[] = [];
    run(
      controller({
        for: services,
        onError: (error) => errors.push(error),
        async reconcile(key) {
          await things.put(key, { n: reconciled.keys.length });
          reconciled.add(key);
          return reconciled.keys.length < 3 ? { requeueAfterMs: 1 } : undefined;
        },
      }),
    );
    await services.put("a", { selector: "" });
    await reconciled.times("a", 3);
    expect(errors).toEqual([]);
  });

  it("unless the store was restored since", async () => {
    const first = new MemoryStorage({ clock: systemClock });
    for (let i = 0; i < 50; i++) await first.put({ key: "x", value: utf8("1") });
    let server = await CachedServer.over(first);
    const { port } = server;
    const client = connect({ address: server.address });
    onTestFinished(async () => {
      client.close();
      await server.close();
    });
    const things = client.resource("things", bytes);
    const reconciled = new Reconciled();
    const informer = things.sharedInformer({ onWatchError: () => {} });
    run(
      controller({
        for: informer,
        async reconcile(key) {
          if (key === "x") await things.put("written", utf8("1"));
          reconciled.add(key);
        },
      }),
    );
    await reconciled.times("written");
    await server.close();
    server = await CachedServer.over(new MemoryStorage({ clock: systemClock }), {}, port);
    reconciled.clear();
    await client.put("things", "x", utf8("2"));
    await reconciled.times("x");
  });
});

describe("The revisions that reconciles have written", () => {
  const source = (revision: number, historyId = "h") => {
    return { revision, historyId, waitForRevision: async () => {} };
  };

  it("are kept until all sources have reached them, and no more than the maximum", () => {
    const one = source(5);
    const other = source(5);
    const written = new WrittenRevisions([one, other], 3);
    for (let i = 6; i < 10; i++) written.add(`k${i}`, { revision: i, historyId: "h" });
    expect([written.size, written.isCurrent("k6"), written.isCurrent("k7")]).toEqual([
      3,
      true,
      false,
    ]);
    one.revision = 8;
    expect(written.isCurrent("k7")).toBe(false);
    other.revision = 8;
    expect([written.isCurrent("k7"), written.isCurrent("k9")]).toEqual([true, false]);
    // Those that are reached go with the next write.
    written.add("k10", { revision: 10, historyId: "h" });
    expect(written.size).toBe(2);
  });

  it("are waited for, but not those of a store that was restored", async () => {
    const waits: number[] = [];
    let failure: Error | undefined;
    const waiting = {
      ...source(5),
      async waitForRevision(revision: number) {
        waits.push(revision);
        if (failure !== undefined) throw failure;
      },
    };
    const written = new WrittenRevisions([waiting, source(9)], 10);
    const { signal } = new AbortController();
    const wait = async (): Promise<boolean> => {
      written.add("a", { revision: 7, historyId: "h" });
      await written.wait("a", signal);
      return written.isCurrent("a");
    };
    expect(await wait()).toBe(true);
    failure = new WatchFanoutError("HISTORY_CHANGED", "It was restored.");
    expect(await wait()).toBe(true);
    failure = new WatchFanoutError("UPSTREAM_UNAVAILABLE", "It is away.");
    await expect(wait()).rejects.toBe(failure);
    expect([waits, written.isCurrent("a")]).toEqual([[7, 7, 7], false]);
  });

  it("are still required if they come while earlier ones are waited for", async () => {
    const reached = Promise.withResolvers<void>();
    const late = { ...source(5), waitForRevision: () => reached.promise };
    const written = new WrittenRevisions([late], 10);
    written.add("a", { revision: 7, historyId: "h" });
    const waited = written.wait("a", new AbortController().signal);
    written.add("a", { revision: 9, historyId: "h" });
    late.revision = 7;
    reached.resolve();
    await waited;
    expect(written.isCurrent("a")).toBe(false);
    late.revision = 9;
    expect(written.isCurrent("a")).toBe(true);
  });

  it("are those of each history by itself", () => {
    const written = new WrittenRevisions([source(5, "one"), source(100, "other")], 10);
    written.add("a", { revision: 50, historyId: "other" });
    expect(written.isCurrent("a")).toBe(true);
    written.add("a", { revision: 6, historyId: "one" });
    written.add("a", { revision: 4, historyId: "one" });
    expect(written.isCurrent("a")).toBe(false);
    written.add("b", { revision: 1_000, historyId: "" });
    expect(written.isCurrent("b")).toBe(true);
  });
});
