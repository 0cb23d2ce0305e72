import { describe, expect, it } from "vitest";
import type { InformerError } from "../../../src/client/informer/handlers/informer-errors.ts";
import type { Informer } from "../../../src/client/informer/shared-use.ts";
import type { ResourceInformerOptions } from "../../../src/client/typed/typed-resource.ts";
import { bytes, jsonValues } from "../../../src/client/values/value-codec.ts";
import { type Counter, counters, serveCounters, utf8 } from "../counters.ts";

/** The keys that a handler of an informer was called for. */
function called<T>(informer: Informer<T>): string[] {
  const keys: string[] = [];
  informer.addEventHandler({ onChange: (key) => keys.push(key) });
  return keys;
}

describe("Two parts of a program that share an informer", () => {
  it("have one watch and one indexer, and each its own handlers", async () => {
    const { client, things, cacher } = await serveCounters();
    await using one = things.sharedInformer({ scope: { prefix: "" } });
    await using other = client
      .resource("things", counters)
      .sharedInformer({ scope: { prefix: "" } });
    const ones = called(one);
    one.start();
    await one.waitForSync();
    const { modRevision } = await things.put("a", { n: 1 });
    await one.waitForRevision(modRevision, { handlers: true });
    // It is in use already.
    await other.waitForSync();
    const others = called(other);
    other.start();
    await other.waitForRevision(modRevision, { handlers: true });
    expect([ones, others]).toEqual([["a"], ["a"]]);
    expect(other.indexer).toBe(one.indexer);
    expect(cacher.stats().watchers.live).toBe(1);
  });

  it("end on their own: the watch continues until the last has stopped", async () => {
    const { things, cacher } = await serveCounters();
    const one = things.sharedInformer();
    const other = things.sharedInformer();
    const ones = called(one);
    const others = called(other);
    one.start();
    other.start();
    await one.stop();
    // Stopped twice, it takes nothing from the other.
    await one.stop();
    const { modRevision } = await things.put("a", { n: 1 });
    await other.waitForRevision(modRevision, { handlers: true });
    expect([ones, others]).toEqual([[], ["a"]]);
    expect([one.isStopped, other.isStopped]).toEqual([true, false]);
    expect(() => one.addEventHandler({})).toThrow('The informer "things" was stopped.');
    expect(() => one.start()).toThrow("was stopped");
    await expect(one.waitForSync()).rejects.toThrow("was stopped");
    await expect(one.waitForRevision(1)).rejects.toThrow("was stopped");
    await other.stop();
    await expect.poll(() => cacher.stats().watchers.live).toBe(0);
    // The next one begins again.
    await using next = things.sharedInformer();
    next.start();
    await next.waitForSync();
    expect(next.indexer).not.toBe(other.indexer);
    expect(next.indexer.get("a")?.value).toEqual({ n: 1 });
  });

  it("get their own calls of what has arrived before they end", async () => {
    const { things } = await serveCounters();
    await using one = things.sharedInformer();
    const other = things.sharedInformer();
    const others: string[] = [];
    const gate = Promise.withResolvers<void>();
    other.addEventHandler({
      onChange: async (key) => {
        await gate.promise;
        others.push(key);
      },
    });
    one.start();
    await things.put("a", { n: 1 });
    const { modRevision } = await things.put("b", { n: 1 });
    await one.waitForRevision(modRevision);
    const stopped = other.stop({ drain: true });
    gate.resolve();
    await stopped;
    expect(others).toEqual(["a", "b"]);
  });

  it("have each its own listeners", async () => {
    const { store, things } = await serveCounters();
    const errors: [who: string, error: InformerError][] = [];
    const listening = (who: string) => ({
      onError: (error: InformerError) => errors.push([who, error]),
    });
    await using one = things.sharedInformer(listening("one"));
    const other = things.sharedInformer(listening("other"));
    expect(other.indexer).toBe(one.indexer);
    one.start();
    const wrong = async (): Promise<string[]> => {
      errors.length = 0;
      const { revision } = await store.put({ key: "a", value: utf8("?") });
      await one.waitForRevision(revision);
      return errors.map(([who, { name }]) => `${who}: ${name}`);
    };
    expect(await wrong()).toEqual(["one: DecodeFailure", "other: DecodeFailure"]);
    await other.stop();
    expect(await wrong()).toEqual(["one: DecodeFailure"]);
  });

  it("notice when it stops by itself", async () => {
    const { client, things } = await serveCounters();
    const one = things.sharedInformer({ onWatchError: () => {} });
    const other = things.sharedInformer();
    one.start();
    await other.waitForSync();
    client.close();
    await expect.poll(() => other.stopped.aborted).toBe(true);
    expect(String(other.stopped.reason)).toContain("has stopped: This client is closed.");
    await one.stop();
    await other.stop();
  });
});

describe("An informer is not shared with one", () => {
  it.each<[what: string, one: ResourceInformerOptions<Counter>]>([
    ["of another scope", { scope: { prefix: "a" } }],
    ["of another selector", { labelSelector: "app=web" }],
    ["of another delivery", { delivery: "LATEST_STATE" }],
    ["of other index functions", { indexers: { n: ({ value }) => `${value.n}` } }],
    ["of another transform", { transform: (object) => object }],
  ])("%s", async (_what, options) => {
    const { things } = await serveCounters();
    await using other = things.sharedInformer(options);
    await using one = things.sharedInformer();
    await using same = things.sharedInformer({ ...options });
    expect(one.indexer).not.toBe(other.indexer);
    expect(same.indexer).toBe(other.indexer);
  });

  it("of another codec, resource or client", async () => {
    const { client, things } = await serveCounters();
    const informers = [
      things.sharedInformer(),
      client.resource("things", bytes).sharedInformer(),
      client.resource("others", counters).sharedInformer(),
      client.subscribe().resource("things", counters).sharedInformer(),
    ];
    expect(new Set(informers.map(({ indexer }) => indexer)).size).toBe(informers.length);
    for (const informer of informers) await informer.stop();
  });
});

it("The JSON codec of a check is the same each time.", () => {
  const check = (parsed: unknown) => parsed;
  expect(jsonValues(check)).toBe(jsonValues(check));
  expect(jsonValues()).toBe(jsonValues());
  expect(jsonValues()).not.toBe(jsonValues(check));
});
