import { describe, expect, it } from "vitest";
import { turnMs } from "../../../src/base/event-loop-turns.ts";
import { SharedInformer } from "../../../src/client/informer/shared-informer.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { FakeClock } from "../../fake-clock.ts";
import { object } from "../../reflector/reflected.ts";
import { ScriptedStorage } from "../../reflector/scripted-storage.ts";
import { Informed } from "./informed.ts";

describe("An object that is rejected", () => {
  it("is counted and reported, and the old one remains", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
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
    expect(recorded.lines).toEqual([
      "added a=one@2",
      "a=one@2 is a=four@4",
      "added b=four@4",
      "deleted a=four@6",
      "deleted b=four@6",
    ]);
  });

  it("and never was in the Indexer has no notification of its deletion", async () => {
    const informed = await Informed.start();
    const recorded = informed.listen();
    await informed.write({ a: "?" });
    await informed.write({ a: null });
    await informed.write({ b: "?" });
    await informed.gap({ b: null });
    expect(recorded.lines).toEqual([]);
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
      'TransformFailure: The transform failed at "a", revision 3: it returned an object with the key "other".',
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
  ])("is rejected if %s", async (_what, options, message) => {
    const informed = await Informed.start(options);
    await informed.write({ a: "one" });
    await informed.write({ a: "bad" });
    expect(informed.state).toEqual({ a: "one" });
    expect(informed.errors.map(({ name, message }) => `${name}: ${message}`)).toEqual([message]);
    expect(informed.informer.stats().rejected).toBe(1);
  });
});

describe("An informer that does not keep up", () => {
  it("delivers coalesced changes as the latest state, and deletions with the last one", async () => {
    const informed = await Informed.start({ queueSize: 0 });
    await informed.write({ a: "0", b: "0" });
    const recorded = informed.listen();
    await informed.clock.settle();
    recorded.take();
    for (const text of ["1", "2", "3", "4"]) {
      const value = Buffer.from(text);
      for (const key of ["a", "b", "brief"]) await informed.store.put({ key, value });
    }
    await informed.store.put({ key: "a", value: Buffer.from("5") });
    for (const key of ["b", "brief"]) await informed.store.delete({ key });
    await informed.clock.settle();
    expect(recorded.lines).toEqual([
      "a=0@2 is a=1@3",
      "a=1@3 is a=5@15",
      "b=0@2 is b=1@4",
      "deleted b=4@16",
    ]);
  });

  it("delivers a deletion with the known state, if the last state can't be decoded", async () => {
    const informed = await Informed.start({ queueSize: 0 });
    const recorded = informed.listen();
    await informed.write({ a: "0" });
    for (const text of ["1", "2", "3", "?"]) {
      await informed.store.put({ key: "a", value: Buffer.from(text) });
    }
    await informed.store.delete({ key: "a" });
    await informed.clock.settle();
    expect(recorded.lines).toEqual(["added a=0@2", "a=0@2 is a=1@3", "deleted a=1@7"]);
    expect(informed.errors).toHaveLength(1);
  });

  it("applies a long list over several turns of the event loop, and has synced at its end", async () => {
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
          now += turnMs / 2;
          return key;
        },
        encode: (text: string) => Buffer.from(text),
      },
      clock: {
        now: () => now,
        setTimeout: (callback, ms) => fake.setTimeout(callback, ms),
        setImmediate: (callback) =>
          fake.setImmediate(() => {
            turns.push("turn");
            callback();
          }),
      },
    });
    informer.start();
    await fake.settle();
    expect(turns).toEqual([
      ...["turn", "a, false", "b, false"],
      ...["turn", "c, false", "d, false"],
      "turn",
    ]);
    expect([informer.hasSynced, informer.revision]).toEqual([true, 5]);
  });
});

describe("A gap in history", () => {
  it("is compensated by exactly the changed, new and deleted objects", async () => {
    const informed = await Informed.start();
    await informed.write({ changed: "one", same: "one", gone: "one", again: "one" });
    const recorded = informed.listen();
    await informed.clock.settle();
    recorded.take();
    await informed.gap(
      { changed: "two", gone: "two", again: null, new: "two" },
      { gone: null, again: "three" },
    );
    expect(recorded.take()).toEqual([
      "again=one@2 is again=three@4",
      "changed=one@2 is changed=two@3",
      "added new=two@3",
      // Its final state was not observed.
      "vanished gone=one@2",
    ]);
    expect(informed.informer.stats()).toMatchObject({ relists: 1, objects: 4 });
  });

  it("does not decode unchanged objects again", async () => {
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

  it("does not occur if the watch can be resumed", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one" });
    const recorded = informed.listen();
    await informed.clock.settle();
    recorded.take();
    informed.store.break();
    await informed.write({ a: "two" });
    await informed.write({ a: null });
    await informed.clock.elapse(1_000);
    expect(recorded.take()).toEqual(["a=one@2 is a=two@3", "deleted a=two@4"]);
    expect(informed.informer.stats()).toMatchObject({ relists: 0, reconnects: 1 });
  });

  it("to another history makes every object new, whatever its revision", async () => {
    const informed = await Informed.start();
    await informed.write({ a: "one", b: "one" });
    const recorded = informed.listen();
    await informed.clock.settle();
    recorded.take();
    await informed.store.renewHistory(await informed.store.historyId());
    informed.store.break();
    await informed.clock.elapse(1_000);
    expect(recorded.take()).toEqual(["a=one@2 is a=one@2", "b=one@2 is b=one@2"]);
    // From then on revisions are comparable again.
    await informed.gap({ b: "two" });
    expect(recorded.take()).toEqual(["b=one@2 is b=two@3"]);
  });
});
