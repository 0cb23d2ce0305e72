import { describe, expect, it } from "vitest";
import { type Controller, controller } from "../../../src/client/controller/controller.ts";
import type { ObjectChange } from "../../../src/client/controller/controller-options.ts";
import { DecodeFailure } from "../../../src/client/values/typed-object.ts";
import { etcdOfFile } from "../../etcd/etcd-of-file.ts";
import { FakeClock } from "../../fake-clock.ts";
import { utf8 } from "../counters.ts";
import { setUpMetrics } from "../work-queue/metered.ts";
import { type Pod, Reconciled, run, serve } from "./controlled.ts";

const etcdOf = etcdOfFile();

describe("A controller reconciles a key", () => {
  it("after each change of its object, with that object, once all sources have synced", async () => {
    const { services, pods } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const seen: unknown[] = [];
    await services.put("a", { selector: "1" });
    await pods.put("p", { service: "a" });
    run(
      controller({
        for: services,
        watches: [{ source: pods, keys: () => [] }],
        onSynced: () => reconciled.add("synced"),
        async reconcile(key, { object, lister }) {
          seen.push([key, object?.value.selector, lister(pods).list().length]);
          reconciled.add(key);
        },
      }),
    );
    await reconciled.times("a", 1);
    await services.put("a", { selector: "2" });
    await reconciled.times("a", 2);
    await services.delete("a");
    await reconciled.times("a", 3);
    expect(seen).toEqual([
      ["a", "1", 1],
      ["a", "2", 1],
      ["a", undefined, 1],
    ]);
    expect(reconciled.keys[0]).toBe("synced");
  });

  it("after a change of an object that it owns: of the same key, or by what the object says", async () => {
    const { services, pods, endpoints } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    await endpoints.put("orphan", { pods: [] });
    run(
      controller({
        for: services,
        owns: [endpoints, { source: pods, owner: ({ value }) => value.service }],
        reconcile: async (key) => reconciled.add(key),
      }),
    );
    await reconciled.times("orphan");
    await pods.put("p", { service: "one" });
    await reconciled.times("one", 1);
    // The owner of before has lost it.
    await pods.put("p", { service: "two" });
    await reconciled.times("one", 2);
    await reconciled.times("two", 1);
    await pods.delete("p");
    await reconciled.times("two", 2);
    await endpoints.delete("orphan");
    await reconciled.times("orphan", 2);
  });

  it("after a change of an object that is mapped to it, by both states and the listers", async () => {
    const { services, pods } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const changes: ObjectChange<Pod>[] = [];
    await services.put("a", { selector: "x" });
    await services.put("b", { selector: "y" });
    run(
      controller({
        for: services,
        watches: [
          {
            source: pods,
            keys(change, { lister }) {
              changes.push(change);
              const selectors = [change.before?.value.service, change.after?.value.service];
              return lister(services)
                .list()
                .filter(({ value }) => selectors.includes(value.selector));
            },
          },
        ],
        reconcile: async (key) => reconciled.add(key),
      }),
    );
    await reconciled.times("b");
    await pods.put("p", { service: "x" });
    await reconciled.times("a", 2);
    await pods.put("p", { service: "y" });
    await reconciled.times("a", 3);
    await reconciled.times("b", 2);
    await pods.delete("p");
    await reconciled.times("b", 3);
    expect(changes.map(({ before, after }) => [before?.value, after?.value])).toEqual([
      [undefined, { service: "x" }],
      [{ service: "x" }, { service: "y" }],
      [{ service: "y" }, undefined],
    ]);
  });

  it("again after the time that it asks for, and after it has thrown", async () => {
    const { services } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const errors: unknown[] = [];
    const failure = new Error("Not yet.");
    run(
      controller({
        for: services,
        onError: (error, key) => errors.push([error, key]),
        async reconcile(key) {
          reconciled.add(key);
          const times = reconciled.keys.filter((each) => each === key).length;
          if (key === "fails" && times < 3) throw failure;
          if (key === "again" && times < 3) return { requeueAfterMs: 10 };
          return undefined;
        },
      }),
    );
    await services.put("again", { selector: "" });
    await reconciled.times("again", 3);
    await services.put("fails", { selector: "" });
    await reconciled.times("fails", 3);
    expect(errors).toEqual([
      [failure, "fails"],
      [failure, "fails"],
    ]);
  });

  it("by one worker at a time, and others at the same time", async () => {
    const { services } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const gate = Promise.withResolvers<void>();
    const busy = new Set<string>();
    const overlaps: string[] = [];
    const controlled = controller({
      for: services,
      workers: 2,
      async reconcile(key) {
        if (busy.has(key)) overlaps.push(key);
        busy.add(key);
        reconciled.add(key);
        await gate.promise;
        busy.delete(key);
      },
    });
    run(controlled);
    for (const key of ["a", "b", "c"]) await services.put(key, { selector: "1" });
    await reconciled.times("b");
    const { modRevision } = await services.put("a", { selector: "2" });
    await controlled.waitForRevision(modRevision, { handlers: true });
    expect(controlled.health()).toMatchObject({ reconciling: ["a", "b"], queued: 1 });
    gate.resolve();
    await reconciled.times("a", 2);
    await reconciled.times("c");
    expect(overlaps).toEqual([]);
  });

  it("whose owned object can't be decoded, and reports that", async () => {
    const { client, services, endpoints, pods } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const errors: [error: unknown, key: string][] = [];
    await services.put("a", { selector: "1" });
    const controlled = controller({
      for: services,
      owns: [endpoints, { source: services, owner: ({ value }) => value.selector }],
      watches: [{ source: pods, keys: () => [] }],
      onError: (...error) => errors.push(error),
      reconcile: async (key) => reconciled.add(key),
    });
    run(controlled);
    await reconciled.times("1");
    await client.put("endpoints", "e", utf8("?"));
    await reconciled.times("e");
    // Its owner is known from before. The object itself has its last state, so nothing is done for its own key.
    reconciled.clear();
    const { revision } = await client.put("services", "a", utf8("?"));
    await reconciled.times("1");
    await controlled.waitForRevision(revision, { handlers: true });
    expect(reconciled.keys).toEqual(["1"]);
    expect(errors.map(([error, key]) => [error instanceof DecodeFailure, key])).toEqual([
      [true, "e"],
      [true, "a"],
    ]);
  });
});

/** A controller whose reconciles of a key end when they are let. */
function blocked(options: { readonly stopTimeoutMs?: number; readonly clock?: FakeClock } = {}) {
  const gate = Promise.withResolvers<void>();
  const reconciled = new Reconciled();
  const signals: AbortSignal[] = [];
  const of = (
    services: Parameters<typeof controller<{ selector: string }>>[0]["for"],
  ): Controller =>
    controller({
      ...{ for: services, ...options },
      async reconcile(key, { signal }) {
        signals.push(signal);
        reconciled.add(key);
        await gate.promise;
        reconciled.add(`${key} done`);
      },
    });
  return { gate, reconciled, signals, of };
}

describe("The run of a controller", () => {
  it("ends after the reconciles in progress, and begins no other", async () => {
    const { services } = await serve(await etcdOf());
    const { gate, reconciled, signals, of } = blocked();
    await services.put("a", { selector: "" });
    await services.put("b", { selector: "" });
    const controlled = of(services);
    expect(controlled.health()).toMatchObject({ state: "new", isReady: false });
    const { running, stop } = run(controlled);
    await reconciled.times("a");
    expect(controlled.health()).toMatchObject({
      state: "running",
      isReady: true,
      informers: [{ name: "services", hasSynced: true, failure: undefined }],
      queued: 1,
      reconciling: ["a"],
    });
    const stopped = stop();
    expect(signals[0]?.aborted).toBe(true);
    await expect.poll(() => controlled.health().state).toBe("stopping");
    // Its informers are still there for the reconcile in progress.
    expect(controlled.health().informers[0]?.failure).toBeUndefined();
    gate.resolve();
    await stopped;
    expect(reconciled.keys).toEqual(["a", "a done"]);
    expect(controlled.health()).toMatchObject({ state: "stopped", reconciling: [] });
    await running;
    await expect(controlled.run()).rejects.toThrow("runs only once");
  });

  it("rejects with the keys whose reconciles do not end in time", async () => {
    const { services } = await serve(await etcdOf());
    const clock = new FakeClock();
    const { gate, reconciled, of } = blocked({ stopTimeoutMs: 5_000, clock });
    await services.put("a", { selector: "" });
    const controlled = of(services);
    const { stop } = run(controlled);
    await reconciled.times("a");
    const rejected = expect(stop()).rejects.toThrow('1 reconciles did not end in 5000 ms: "a".');
    await expect.poll(() => controlled.health().state).toBe("stopping");
    await clock.elapse(5_000);
    await rejected;
    gate.resolve();
  });

  it("rejects when its client is closed, after the reconciles in progress", async () => {
    const { client, services } = await serve(await etcdOf());
    const { gate, reconciled, of } = blocked();
    await services.put("a", { selector: "" });
    const { running } = run(of(services));
    await reconciled.times("a");
    client.close();
    gate.resolve();
    await expect(running).rejects.toThrow('"services" has stopped: This client is closed.');
    expect(reconciled.keys).toEqual(["a", "a done"]);
  });

  it("rejects with what onError throws", async () => {
    const { services } = await serve(await etcdOf());
    await services.put("a", { selector: "" });
    const fatal = new Error("Give up.");
    const { running } = run(
      controller({
        for: services,
        onError: (error) => {
          throw error;
        },
        async reconcile() {
          throw fatal;
        },
      }),
    );
    await expect(running).rejects.toBe(fatal);
  });

  it("ends while the service is away, before it has synced", async () => {
    const { services, relay } = await serve(await etcdOf());
    relay.refuse();
    const reconciled = new Reconciled();
    const informer = services.sharedInformer({ onWatchError: () => reconciled.add("failed") });
    const controlled = controller({ for: informer, reconcile: async (key) => reconciled.add(key) });
    const { stop } = run(controlled);
    await reconciled.times("failed");
    expect(controlled.health()).toMatchObject({
      state: "syncing",
      isReady: false,
      informers: [{ hasSynced: false, silentMs: undefined }],
    });
    expect(controlled.health().informers[0]?.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    await stop();
    expect(informer.isStopped).toBe(true);
  });

  it("shares its informers with other controllers, which continue after its end", async () => {
    const { services } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    const of = (name: string) =>
      controller({
        ...{ name, for: services },
        reconcile: async (key) => reconciled.add(`${name} ${key}`),
      });
    const one = of("one");
    const other = of("other");
    expect(one.lister(services).get("a")).toBeUndefined();
    const first = run(one);
    run(other);
    await services.put("a", { selector: "" });
    await reconciled.times("one a");
    await reconciled.times("other a");
    await first.stop();
    await services.put("a", { selector: "" });
    await reconciled.times("other a", 2);
    expect(reconciled.keys.filter((key) => key === "one a")).toHaveLength(1);
  });

  it("counts reconciles by their results", async () => {
    const read = setUpMetrics();
    const { services } = await serve(await etcdOf());
    const reconciled = new Reconciled();
    run(
      controller({
        for: services,
        onError: () => {},
        async reconcile(key) {
          reconciled.add(key);
          if (key === "b" && reconciled.keys.filter((each) => each === "b").length === 1) {
            throw new Error("It fails once.");
          }
          return key === "c" ? { requeueAfterMs: 100_000 } : undefined;
        },
      }),
    );
    for (const key of ["a", "b", "c", "d"]) await services.put(key, { selector: "" });
    await reconciled.times("b", 2);
    await reconciled.times("d");
    const counts = (await read())["watch_fanout_client_controller_reconciles"];
    expect(counts).toEqual([
      ["services", "success", 3],
      ["services", "error", 1],
      ["services", "requeue", 1],
    ]);
  });

  it("needs a worker", async () => {
    const { services } = await serve(await etcdOf());
    const reconcile = async () => {};
    expect(() => controller({ for: services, workers: 0, reconcile })).toThrow("workers is 0");
  });

  it("has no lister of what is no source of it", async () => {
    const { services, pods } = await serve(await etcdOf());
    const controlled = controller({ for: services, reconcile: async () => {} });
    expect(() => controlled.lister(pods)).toThrow("has no source pods that is this object");
    await run(controlled).stop();
  });
});
