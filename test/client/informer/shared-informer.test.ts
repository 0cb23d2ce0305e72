import { describe, expect, it, onTestFinished, vi } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { ScriptedStorage } from "../../reflector/scripted-storage.ts";
import { Informed } from "./informed.ts";
import { outcome } from "./outcome.ts";

describe("An informer", () => {
  it("delivers the existing objects, then changes, and has all objects in memory", async () => {
    const informed = new Informed();
    await informed.write({ a: "one", b: "two" });
    const recorded = informed.listen();
    await informed.start();
    expect(recorded.take()).toEqual(["initially added a=one@2", "initially added b=two@2"]);
    await informed.write({ c: "three" });
    await informed.write({ a: "four" });
    await informed.write({ b: null });
    expect(recorded.take()).toEqual([
      "added c=three@3",
      "a=one@2 is a=four@4",
      // With the revision that removed it.
      "deleted b=two@5",
    ]);
    expect(informed.state).toEqual({ a: "four", c: "three" });
    expect(informed.informer.revision).toBe(5);
  });

  it("makes no call before the write, addEventHandler or start has returned", async () => {
    const informed = new Informed();
    await informed.store.put({ key: "a", value: Buffer.from("one") });
    const recorded = informed.listen();
    informed.informer.start();
    const late = informed.listen();
    expect([recorded.lines, late.lines]).toEqual([[], []]);
    await informed.clock.settle();
    expect([recorded.lines, late.lines]).toEqual([
      ["initially added a=one@2"],
      ["initially added a=one@2"],
    ]);
  });

  it("follows one prefix if configured", async () => {
    const informed = await Informed.start({ scope: { prefix: "x/" } });
    await informed.write({ "x/1": "in", "y/1": "out" });
    expect(informed.state).toEqual({ "x/1": "in" });
  });

  it("follows one key through all its states, and no other key that begins with it", async () => {
    const informed = new Informed({ scope: { key: "a" } });
    await informed.write({ a: "one", "a/1": "out" });
    const recorded = informed.listen();
    await informed.start();
    await informed.write({ a: "two", "a/1": "out", b: "out" });
    await informed.gap({ a: "three", "a/2": "out" });
    expect(informed.state).toEqual({ a: "three" });
    await informed.gap({ a: null });
    await informed.write({ a: "four" });
    expect(recorded.lines).toEqual([
      "initially added a=one@2",
      "a=one@2 is a=two@3",
      "a=two@3 is a=three@4",
      "vanished a=three@4",
      "added a=four@6",
    ]);
  });

  it("is refused for an invalid key", () => {
    expect(() => new Informed({ scope: { key: "" } })).toThrow(
      "The key is empty: name the object.",
    );
  });

  it("delivers an object that was created and deleted in one step", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
    await informed.store.put({ key: "a", value: Buffer.from("one") });
    await informed.store.delete({ key: "a" });
    await informed.clock.settle();
    expect(recorded.lines).toEqual(["added a=one@2", "deleted a=one@3"]);
  });

  it("finds objects by indexes, also by those added later", async () => {
    const informed = await Informed.start({ indexers: { value: ({ value }) => value } });
    await informed.write({ a: "x", b: "y", c: "x" });
    informed.informer.indexer.addIndexers({ first: ({ key }) => key.charAt(0) });
    await informed.write({ b: "x" });
    expect(informed.informer.indexer.indexKeys("value", "x")).toEqual(["a", "b", "c"]);
    expect(informed.informer.indexer.indexKeys("first", "b")).toEqual(["b"]);
  });

  it("stores and delivers the results of its transform", async () => {
    const informed = await Informed.start({
      transform: (object) => ({ ...object, value: object.value.toUpperCase() }),
    });
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    expect(recorded.lines).toEqual(["added a=ONE@2", "a=ONE@2 is a=TWO@3", "deleted a=TWO@4"]);
  });
});

describe("An informer has synced", () => {
  it("after the whole initial list is in its Indexer", async () => {
    const informed = new Informed();
    await informed.write({ a: "one" });
    const synced = informed.informer.waitForSync();
    expect([informed.informer.hasSynced, informed.informer.revision]).toEqual([false, undefined]);
    expect(await outcome(synced)).toBe("pending");
    await informed.start();
    await synced;
    expect(informed.informer.hasSynced).toBe(true);
    expect(informed.state).toEqual({ a: "one" });
  });

  it("immediately if there are no objects, and so have its handlers", async () => {
    const informed = new Informed();
    const { registration } = informed.listen();
    expect(registration.hasSynced).toBe(false);
    await informed.start();
    await informed.informer.waitForSync();
    await registration.waitForSync();
    expect([registration.hasSynced, informed.listen().registration.hasSynced]).toEqual([
      true,
      true,
    ]);
  });

  it("or the wait ends: by a signal, or as it is stopped", async () => {
    const informed = new Informed();
    const leaving = new AbortController();
    const { registration } = informed.listen();
    const left = informed.informer.waitForSync(leaving.signal);
    const stopped = [informed.informer.waitForSync(), registration.waitForSync()];
    leaving.abort(new Error("enough"));
    await expect(left).rejects.toThrow("enough");
    await informed.informer.stop();
    for (const each of stopped) await expect(each).rejects.toThrow(/was (stopped|removed)/);
    await expect(informed.informer.waitForSync()).rejects.toThrow('"informer" was stopped');
  });

  it("for a handler after its call for the last initial object has ended", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one", b: "two" });
    const calls: PromiseWithResolvers<void>[] = [];
    const registration = informed.informer.addEventHandler({
      onAdd: () => {
        const call = Promise.withResolvers<void>();
        calls.push(call);
        return call.promise;
      },
    });
    for (const count of [1, 2]) {
      await informed.clock.settle();
      expect([calls.length, registration.hasSynced]).toEqual([count, false]);
      calls.at(-1)?.resolve();
    }
    await registration.waitForSync();
  });

  it("with the objects that can be decoded, if some can't", async () => {
    const informed = new Informed();
    await informed.write({ a: "?", b: "two" });
    await informed.start();
    await informed.informer.waitForSync();
    expect(informed.state).toEqual({ b: "two" });
  });
});

describe("A resync", () => {
  it("calls handlers for all objects again, after each resync period", async () => {
    const informed = await Informed.start({ resyncMs: 60_000 });
    informed.informer.start();
    await informed.write({ a: "one", b: "two" });
    const recorded = informed.listen();
    const coalescedCount = informed.listen({ resync: false });
    await informed.clock.settle();
    recorded.take();
    coalescedCount.take();
    await informed.clock.elapse(59_999);
    expect(recorded.take()).toEqual([]);
    await informed.clock.elapse(60_001);
    const once = ["same a=one@2", "same b=two@2"];
    expect(recorded.take()).toEqual([...once, ...once]);
    expect(coalescedCount.take()).toEqual([]);
  });

  it("waits for the initial list, and ends with the informer", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(new WatchFanoutError("NOT_READY", "Not yet."));
    const informed = await Informed.start({ storage, resyncMs: 10 });
    await informed.clock.elapse(100);
    await informed.informer.stop();
    expect(informed.clock.pendingTimers).toBe(0);
  });
});

describe("Failures of the watch", () => {
  it("are reported with the next step, and do not end the informer", async () => {
    const failures: string[] = [];
    const informed = await Informed.start({
      onWatchError: ({ error, next, pauseMs, revision }) => {
        failures.push(`${error.reason}: ${next} in ${pauseMs} ms from ${revision}`);
      },
    });
    expect(informed.informer.failure).toBeUndefined();
    informed.store.break();
    await informed.clock.settle();
    expect(informed.informer.failure?.reason).toBe("UPSTREAM_UNAVAILABLE");
    await informed.clock.elapse(1_000);
    await informed.write({ a: "one" });
    await informed.gap({ a: "two" });
    expect(failures).toEqual([
      "UPSTREAM_UNAVAILABLE: resume in 50 ms from 1",
      "UPSTREAM_UNAVAILABLE: resume in 100 ms from 2",
      "REVISION_TOO_OLD: list in 200 ms from 2",
    ]);
    expect(informed.state).toEqual({ a: "two" });
  });

  it("do not end the informer either if its logger throws", async () => {
    const warnings = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    onTestFinished(() => warnings.mockRestore());
    const levels: string[] = [];
    const failing = (level: string) => (): never => {
      levels.push(level);
      throw new Error(`no ${level}`);
    };
    const logger = { info: failing("info"), warn: failing("warn"), error: failing("error") };
    const informed = await Informed.start({ logger, onError: undefined });
    informed.store.break();
    await informed.clock.elapse(1_000);
    await informed.write({ a: "one", b: "?" });
    expect(informed.informer.isStopped).toBe(false);
    expect(informed.state).toEqual({ a: "one" });
    expect(levels).toEqual(["warn", "info", "error"]);
    expect(warnings.mock.calls.map(([warning]) => String(warning))).toEqual([
      "Error: no warn",
      "Error: no info",
      "Error: no error",
    ]);
  });

  it("that the contract of Storage excludes end it, and are reported", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(new TypeError("a fault"));
    const informed = new Informed({ storage });
    const synced = informed.informer.waitForSync();
    await informed.start();
    await expect(synced).rejects.toThrow(`The informer "informer" can't continue: a fault`);
    expect(informed.errors.map(({ name }) => name)).toEqual(["InformerFault"]);
    expect(informed.informer.isStopped).toBe(true);
  });
});

describe("The recovery of an informer", () => {
  /** The reports of its watch: failures, and the next step. */
  async function saying() {
    const said: string[] = [];
    const informed = new Informed({
      onWatchError: ({ next }) => said.push(next),
      onRecovered: () => said.push("recovered"),
    });
    await informed.start();
    return { informed, said };
  }

  it("is reported when anything was received, if only a bookmark", async () => {
    const { informed, said } = await saying();
    await informed.write({ a: "one" });
    informed.store.break();
    await informed.clock.elapse(1_000);
    expect(said).toEqual(["resume", "recovered"]);
    expect(informed.informer.failure).toBeUndefined();
    await informed.write({ a: "two" });
    expect(said).toEqual(["resume", "recovered"]);
  });

  it("is reported after a relist", async () => {
    const { informed, said } = await saying();
    await informed.gap({ a: "one" }, { a: "two" });
    expect(said).toEqual(["resume", "list", "recovered"]);
  });

  it("is reported after a start that failed, and not after one that did not", async () => {
    const storage = new ScriptedStorage();
    const said: string[] = [];
    let away = 2;
    storage.onCurrentRevision = () => {
      if (away-- > 0) throw new WatchFanoutError("UPSTREAM_UNAVAILABLE", "It is away.");
      return 5;
    };
    const { clock } = await Informed.start({
      storage,
      onWatchError: ({ next }) => said.push(next),
      onRecovered: () => said.push("recovered"),
    });
    await clock.elapse(1_000);
    expect(said).toEqual(["list", "list", "recovered"]);
    expect((await saying()).said).toEqual([]);
  });
});

describe("An informer is not created with", () => {
  it.each([
    ["resyncMs", Number.NaN],
    ["resyncMs", -1],
    ["resyncMs", 2 ** 31],
    ["queueSize", Number.NaN],
    ["queueSize", -1],
    ["queueSize", 1.5],
  ])("a %s of %d", (name, value) => {
    expect(() => new Informed({ [name]: value })).toThrow(`${name} is ${value}`);
  });

  it("a resync timer if the period is 0", async () => {
    const informed = await Informed.start({ resyncMs: 0 });
    const recorded = informed.listen();
    await informed.write({ a: "one" });
    await informed.clock.elapse(60_000);
    expect(recorded.lines).toEqual(["added a=one@2"]);
  });
});
