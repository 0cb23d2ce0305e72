import { describe, expect, it } from "vitest";
import { SharedInformer } from "../../../src/client/informer/shared-informer.ts";
import { jsonValues } from "../../../src/client/value-codec.ts";
import { WatchFanoutError } from "../../../src/errors.ts";
import { FakeClock } from "../../fake-clock.ts";
import { batch, object } from "../../reflector/reflected.ts";
import { ScriptedStorage } from "../../reflector/scripted-storage.ts";
import { Informed } from "./informed.ts";

/** A promise that has not come to anything yet, and how it does. */
async function outcome(promise: Promise<unknown>): Promise<unknown> {
  const pending = Symbol("pending");
  const first = await Promise.race([promise.catch((error: unknown) => error), turns(pending)]);
  return first === pending ? "pending" : first;
}

async function turns<T>(value: T): Promise<T> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
  return value;
}

describe("An informer", () => {
  it("tells what is there, then what happens, and has it all at hand", async () => {
    const informed = new Informed();
    await informed.write({ a: "one", b: "two" });
    const told = informed.listen();
    await informed.start();
    expect(told.take()).toEqual(["initially added a=one@2", "initially added b=two@2"]);
    await informed.write({ c: "three" });
    await informed.write({ a: "four" });
    await informed.write({ b: null });
    expect(told.take()).toEqual([
      "added c=three@3",
      "a=one@2 is a=four@4",
      // With the revision that removed it.
      "deleted b=two@5",
    ]);
    expect(informed.state).toEqual({ a: "four", c: "three" });
    expect(informed.informer.revision).toBe(5);
  });

  it("calls nothing before it has returned to who wrote, added or started", async () => {
    const informed = new Informed();
    await informed.store.put({ key: "a", value: Buffer.from("one") });
    const told = informed.listen();
    informed.informer.start();
    const late = informed.listen();
    expect([told.lines, late.lines]).toEqual([[], []]);
    await informed.clock.settle();
    expect([told.lines, late.lines]).toEqual([
      ["initially added a=one@2"],
      ["initially added a=one@2"],
    ]);
  });

  it("follows one prefix if it is told to", async () => {
    const informed = await Informed.start({ scope: { prefix: "x/" } });
    await informed.write({ "x/1": "in", "y/1": "out" });
    expect(informed.state).toEqual({ "x/1": "in" });
  });

  it("does not pass over what came and went in one go", async () => {
    const informed = await Informed.start();
    const told = informed.listen();
    await informed.store.put({ key: "a", value: Buffer.from("one") });
    await informed.store.delete({ key: "a" });
    await informed.clock.settle();
    expect(told.lines).toEqual(["added a=one@2", "deleted a=one@3"]);
  });

  it("finds objects by indexes, those added later too", async () => {
    const informed = await Informed.start({ indexers: { value: ({ value }) => value } });
    await informed.write({ a: "x", b: "y", c: "x" });
    informed.informer.indexer.addIndexers({ first: ({ key }) => key.charAt(0) });
    await informed.write({ b: "x" });
    expect(informed.informer.indexer.indexKeys("value", "x")).toEqual(["a", "b", "c"]);
    expect(informed.informer.indexer.indexKeys("first", "b")).toEqual(["b"]);
  });

  it("stores and tells of what its transform makes of objects", async () => {
    const informed = await Informed.start({
      transform: (object) => ({ ...object, value: object.value.toUpperCase() }),
    });
    const told = informed.listen();
    await informed.write({ a: "one" });
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    expect(told.lines).toEqual(["added a=ONE@2", "a=ONE@2 is a=TWO@3", "deleted a=TWO@4"]);
  });
});

describe("An informer has synced", () => {
  it("once all of the first state is in its Indexer", async () => {
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

  it("at once where there is nothing, and so have its handlers", async () => {
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

  it("or is not waited for any longer: by a signal, or as it is stopped", async () => {
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

  it("for a handler once its call for the last initial object is over", async () => {
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

  it("with what can be decoded, where not all can", async () => {
    const informed = new Informed();
    await informed.write({ a: "?", b: "two" });
    await informed.start();
    await informed.informer.waitForSync();
    expect(informed.state).toEqual({ b: "two" });
  });
});

describe("An object that can't be taken in", () => {
  it("is counted and reported, and the old one stays", async () => {
    const informed = await Informed.start();
    const told = informed.listen();
    await informed.write({ a: "one" });
    await informed.write({ a: "?", b: "?" });
    expect(informed.state).toEqual({ a: "one" });
    expect(informed.errors.map(({ name, message }) => `${name}: ${message}`)).toEqual([
      `DecodeFailure: The value of "a" at revision 3 can't be decoded: it is a question.`,
      `DecodeFailure: The value of "b" at revision 3 can't be decoded: it is a question.`,
    ]);
    expect(informed.informer.stats().rejected).toBe(2);
    await informed.write({ a: "four", b: "four" });
    await informed.write({ a: "?" });
    await informed.write({ a: null, b: null });
    expect(told.lines).toEqual([
      "added a=one@2",
      "a=one@2 is a=four@4",
      "added b=four@4",
      "deleted a=four@6",
      "deleted b=four@6",
    ]);
  });

  it("and never was is not told of when it goes", async () => {
    const informed = await Informed.start();
    const told = informed.listen();
    await informed.write({ a: "?" });
    await informed.write({ a: null });
    await informed.write({ b: "?" });
    await informed.gap({ b: null });
    expect(told.lines).toEqual([]);
  });

  it.each([
    [
      "its transform throws",
      {
        transform: ({ value, ...object }: { value: string; key: string }) => {
          if (value === "bad") throw new Error("it is bad.");
          return { ...object, value } as never;
        },
      },
      'TransformFailure: The transform failed at "a", revision 3: it is bad.',
    ],
    [
      "its transform gives it another key",
      {
        transform: (object: { value: string; key: string }) =>
          (object.value === "bad" ? { ...object, key: "other" } : object) as never,
      },
      'TransformFailure: The transform failed at "a", revision 3: it gave an object with the key "other".',
    ],
    [
      "an index function throws",
      {
        indexers: {
          good: ({ value }: { value: string }) => {
            if (value === "bad") throw new Error("it is bad.");
            return value;
          },
        },
      },
      'IndexError: The index function "good" failed at "a": it is bad. Nothing was changed.',
    ],
  ])("is one where %s", async (_what, options, message) => {
    const informed = await Informed.start(options);
    await informed.write({ a: "one" });
    await informed.write({ a: "bad" });
    expect(informed.state).toEqual({ a: "one" });
    expect(informed.errors.map(({ name, message }) => `${name}: ${message}`)).toEqual([message]);
    expect(informed.informer.stats().rejected).toBe(1);
  });
});

describe("An informer that does not keep up", () => {
  it("tells what it folds to the newest state, and what went as it last was", async () => {
    const informed = await Informed.start({ queueSize: 0 });
    await informed.write({ a: "0", b: "0" });
    const told = informed.listen();
    await informed.clock.settle();
    told.take();
    for (const text of ["1", "2", "3", "4"]) {
      const value = Buffer.from(text);
      for (const key of ["a", "b", "brief"]) await informed.store.put({ key, value });
    }
    await informed.store.put({ key: "a", value: Buffer.from("5") });
    for (const key of ["b", "brief"]) await informed.store.delete({ key });
    await informed.clock.settle();
    expect(told.lines).toEqual([
      "a=0@2 is a=1@3",
      "a=1@3 is a=5@15",
      "b=0@2 is b=1@4",
      "deleted b=4@16",
    ]);
  });

  it("tells of what went as it was known, where its last state can't be decoded", async () => {
    const informed = await Informed.start({ queueSize: 0 });
    const told = informed.listen();
    await informed.write({ a: "0" });
    for (const text of ["1", "2", "3", "?"]) {
      await informed.store.put({ key: "a", value: Buffer.from(text) });
    }
    await informed.store.delete({ key: "a" });
    await informed.clock.settle();
    expect(told.lines).toEqual(["added a=0@2", "a=0@2 is a=1@3", "deleted a=1@7"]);
    expect(informed.errors).toHaveLength(1);
  });

  it("gives the event loop its turn, and has synced when it is through", async () => {
    const storage = new ScriptedStorage();
    storage.objects = ["a", "b", "c", "d"].map((key) => object(key, 5));
    const turns: string[] = [];
    let now = 0;
    const fake = new FakeClock();
    const informer: SharedInformer<string> = new SharedInformer({
      storage,
      codec: {
        decode: (_value, key) => {
          turns.push(`${key}, ${informer.hasSynced}`);
          now += 2;
          return key;
        },
        encode: (text: string) => Buffer.from(text),
      },
      clock: {
        now: () => now,
        setTimeout: (callback, ms) => fake.setTimeout(callback, ms),
        setImmediate: (callback) => {
          turns.push("turn");
          return fake.setImmediate(callback);
        },
      },
    });
    informer.start();
    await fake.settle();
    expect(turns).toEqual(["turn", "a, false", "b, false", "c, false", "turn", "d, false"]);
    expect([informer.hasSynced, informer.revision]).toEqual([true, 5]);
  });
});

describe("A gap in history", () => {
  it("is made up for by what changed, what is new and what vanished, and by nothing else", async () => {
    const informed = await Informed.start();
    await informed.write({ changed: "one", same: "one", gone: "one", again: "one" });
    const told = informed.listen();
    await informed.clock.settle();
    told.take();
    await informed.gap(
      { changed: "two", gone: "two", again: null, new: "two" },
      { gone: null, again: "three" },
    );
    expect(told.take()).toEqual([
      "again=one@2 is again=three@4",
      "changed=one@2 is changed=two@3",
      "added new=two@3",
      // Nobody saw what it was when it went.
      "vanished gone=one@2",
    ]);
    expect(informed.informer.stats()).toMatchObject({ relists: 1, objects: 4 });
  });

  it("does not have what did not change decoded again", async () => {
    let decoded = 0;
    const codec = jsonValues<number>((parsed) => {
      decoded++;
      return Number(parsed);
    });
    const informed = await Informed.start({ codec: codec as never });
    await informed.write({ a: "1", b: "2" });
    await informed.gap({ b: "3" });
    expect(decoded).toBe(3);
  });

  it("is not there where the watch can be resumed", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one" });
    const told = informed.listen();
    await informed.clock.settle();
    told.take();
    informed.store.break();
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    await informed.clock.elapse(1_000);
    expect(told.take()).toEqual(["a=one@2 is a=two@3", "deleted a=two@4"]);
    expect(informed.informer.stats()).toMatchObject({ relists: 0, reconnects: 1 });
  });

  it("in another history makes all of it new, whatever the revisions are", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one", b: "one" });
    const told = informed.listen();
    await informed.clock.settle();
    told.take();
    await informed.store.renewHistory(await informed.store.historyId());
    informed.store.break();
    await informed.clock.elapse(1_000);
    expect(told.take()).toEqual(["a=one@2 is a=one@2", "b=one@2 is b=one@2"]);
    // From then on revisions mean again what they say.
    await informed.gap({ b: "two" });
    expect(told.take()).toEqual(["b=one@2 is b=two@3"]);
  });
});

describe("A resync", () => {
  it("tells handlers of all objects again, each time that the period is over", async () => {
    const informed = await Informed.start({ resyncMs: 60_000 });
    informed.informer.start();
    await informed.write({ a: "one", b: "two" });
    const told = informed.listen();
    const spared = informed.listen({ resync: false });
    await informed.clock.settle();
    told.take();
    spared.take();
    await informed.clock.elapse(59_999);
    expect(told.take()).toEqual([]);
    await informed.clock.elapse(60_001);
    const once = ["same a=one@2", "same b=two@2"];
    expect(told.take()).toEqual([...once, ...once]);
    expect(spared.take()).toEqual([]);
  });

  it("waits for the first state, and ends with the informer", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(new WatchFanoutError("NOT_READY", "Not yet."));
    const informed = await Informed.start({ storage, resyncMs: 10 });
    await informed.clock.elapse(100);
    await informed.informer.stop();
    expect(informed.clock.pendingTimers).toBe(0);
  });
});

describe("Failures of the watch", () => {
  it("are told, with what is done about them, and do not end the informer", async () => {
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
      "UPSTREAM_UNAVAILABLE: resume in 50 ms from 2",
      "REVISION_TOO_OLD: list in 100 ms from 2",
    ]);
    expect(informed.state).toEqual({ a: "two" });
  });

  it("that no storage may have end it, and are told", async () => {
    const storage = new ScriptedStorage();
    storage.onCurrentRevision = () => Promise.reject(new TypeError("a fault"));
    const informed = new Informed({ storage });
    const synced = informed.informer.waitForSync();
    await informed.start();
    await expect(synced).rejects.toThrow(`The informer "informer" can't go on: a fault`);
    expect(informed.errors.map(({ name }) => name)).toEqual(["InformerFault"]);
    expect(informed.informer.isStopped).toBe(true);
  });
});

describe("An informer that is stopped", () => {
  it("tells nothing more, takes no handlers, and keeps its objects", async () => {
    const informed = await Informed.start();
    const told = informed.listen();
    await informed.write({ a: "one" });
    await informed.informer.stop();
    await informed.informer.stop();
    await informed.write({ a: "two" });
    expect(told.lines).toEqual(["added a=one@2"]);
    expect(informed.state).toEqual({ a: "one" });
    expect(() => informed.listen()).toThrow('The informer "informer" was stopped.');
    expect(() => informed.informer.start()).toThrow('The informer "informer" was stopped.');
    expect([informed.clock.pendingTimers, informed.clock.pendingImmediates]).toEqual([0, 0]);
  });

  it("takes in nothing that has arrived but is not in yet", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    expect(informed.informer.stats().pendingKeys).toBe(1);
    await informed.informer.stop();
    expect(informed.informer.stats().pendingKeys).toBe(0);
    expect(informed.clock.pendingImmediates).toBe(0);
    expect(informed.informer.revision).toBe(5);
  });

  it("before it was started, never begins", async () => {
    const informed = new Informed();
    await informed.informer[Symbol.asyncDispose]();
    expect(() => informed.informer.start()).toThrow("was stopped");
  });

  it("waits for calls that are being made, however often it is stopped", async () => {
    const informed = await Informed.start();
    const call = Promise.withResolvers<void>();
    const calls: string[] = [];
    informed.informer.addEventHandler({
      onAdd: ({ key }) => {
        calls.push(key);
        return call.promise;
      },
    });
    await informed.write({ a: "one", b: "two" });
    const stops = [informed.informer.stop(), informed.informer.stop()];
    for (const each of stops) expect(await outcome(each)).toBe("pending");
    call.resolve();
    await Promise.all(stops);
    await informed.clock.settle();
    expect(calls).toEqual(["a"]);
  });

  it("does not wait for a handler that hangs for longer than it is told", async () => {
    const informed = await Informed.start();
    informed.informer.addEventHandler({ onAdd: () => new Promise(() => {}) });
    await informed.write({ a: "one" });
    for (const drain of [true, false]) {
      const patience = new AbortController();
      const stop = informed.informer.stop({ drain, signal: patience.signal });
      expect(await outcome(stop)).toBe("pending");
      patience.abort(new Error("enough"));
      await expect(stop).rejects.toThrow("enough");
    }
    expect(informed.informer.isStopped).toBe(true);
  });

  it("takes in and tells first what has arrived, if it is to drain", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    const told = informed.listen();
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    const stop = informed.informer.stop({ drain: true });
    await informed.clock.settle();
    await stop;
    expect(told.lines).toEqual(["added a=@6"]);
  });

  it("drains no longer once it is stopped without", async () => {
    const storage = new ScriptedStorage();
    const informed = await Informed.start({ storage });
    const told = informed.listen();
    storage.stream.push(batch(6, ["ADDED", "a", 6]));
    await Promise.all([informed.informer.stop({ drain: true }), informed.informer.stop()]);
    expect(told.lines).toEqual([]);
  });

  it("tells first what its handlers have not been told yet, if it is to drain", async () => {
    const informed = await Informed.start();
    const told = informed.listen();
    for (const value of ["one", "two"]) {
      await informed.store.put({ key: "a", value: Buffer.from(value) });
    }
    informed.clock.runImmediates();
    const stop = informed.informer.stop({ drain: true });
    await informed.store.put({ key: "b", value: Buffer.from("late") });
    await informed.clock.settle();
    await stop;
    expect(told.lines).toEqual(["added a=one@2", "a=one@2 is a=two@3"]);
  });
});
