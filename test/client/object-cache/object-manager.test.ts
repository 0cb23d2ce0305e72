import { describe, expect, it, onTestFinished } from "vitest";
import { ObjectCache, ObjectManager } from "../../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { FakeClock } from "../../fake-clock.ts";
import { setUpMetrics } from "../work-queue/metered.ts";
import { ScriptedClient } from "./scripted-client.ts";

interface Pod {
  readonly name: string;
  readonly configs: readonly string[];
}

function managed() {
  const clock = new FakeClock();
  const client = new ScriptedClient();
  const cache = new ObjectCache<number>({
    client,
    resource: "configs",
    codec: jsonValues<number>(),
    clock,
  });
  const manager = new ObjectManager<Pod, number>({
    cache,
    consumerId: ({ name }) => name,
    referencedKeys: ({ configs }) => configs,
  });
  onTestFinished(() => cache.close());
  return { clock, client, cache, manager };
}

const pod = (name: string, ...configs: string[]): Pod => ({ name, configs });

describe("A consumer", () => {
  it("has all its objects watched until it is unregistered", async () => {
    const { clock, client, manager } = managed();
    manager.registerConsumer(pod("p", "a", "b", "a"));
    await clock.settle();
    expect([client.open, manager.consumers]).toEqual([["a", "b"], 1]);
    manager.unregisterConsumer(pod("p"));
    await clock.settle();
    expect([client.open, manager.consumers]).toEqual([[], 0]);
  });

  it("shares objects with other references", async () => {
    const { clock, client, manager } = managed();
    manager.registerConsumer(pod("p", "a", "b"));
    manager.registerConsumer(pod("q", "b", "c"));
    await clock.settle();
    expect(client.open).toEqual(["a", "b", "c"]);
    manager.unregisterConsumer(pod("p"));
    await clock.settle();
    expect(client.open).toEqual(["b", "c"]);
  });

  it("that changes keeps the watches of what it still needs", async () => {
    const { clock, client, manager } = managed();
    manager.registerConsumer(pod("p", "a", "b"));
    await clock.settle();
    const kept = client.of("b");
    client.of("b").initial(5, "7");
    manager.registerConsumer(pod("p", "b", "c"));
    await clock.settle();
    expect([client.open, client.of("b") === kept, kept.open]).toEqual([["b", "c"], true, true]);
    expect((await manager.get("b")).value).toBe(7);
  });

  it("that is registered again unchanged changes nothing, and is unregistered once", async () => {
    const { clock, client, manager } = managed();
    for (let times = 0; times < 3; times++) manager.registerConsumer(pod("p", "a"));
    await clock.settle();
    expect([client.open, client.watches.length]).toEqual([["a"], 1]);
    manager.unregisterConsumer(pod("p", "a"));
    await clock.settle();
    expect(client.open).toEqual([]);
  });

  it("that was modified since is released as it was registered", async () => {
    const { clock, client, manager } = managed();
    const configs = ["a", "b"];
    const changing = { name: "p", configs };
    manager.registerConsumer(changing);
    configs.pop();
    manager.unregisterConsumer(changing);
    await clock.settle();
    expect(client.open).toEqual([]);
  });

  it("that is not registered can be unregistered without effect", () => {
    const { manager, cache } = managed();
    manager.unregisterConsumer(pod("p", "a"));
    expect(cache.size).toBe(0);
  });

  it("with an invalid key is refused, and keeps its references", async () => {
    const { clock, client, manager } = managed();
    manager.registerConsumer(pod("p", "a"));
    expect(() => manager.registerConsumer(pod("p", "b", ""))).toThrow(
      expect.objectContaining({ reason: "INVALID_REQUEST" }),
    );
    await clock.settle();
    expect(client.open).toEqual(["a"]);
  });
});

it("A cache has metrics: the number of keys with references, and of watched objects.", async () => {
  const read = setUpMetrics();
  const { clock, client, cache, manager } = managed();
  manager.registerConsumer(pod("p", "a", "b"));
  await clock.settle();
  client.of("a").initial(1, "1");
  expect(await read()).toEqual({
    watch_fanout_client_object_cache_objects: [["configs", 2]],
    watch_fanout_client_object_cache_watches: [["configs", 2]],
  });
  await cache.close();
  expect(await read()).toEqual({});
});
