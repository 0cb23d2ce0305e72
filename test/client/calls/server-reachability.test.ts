import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/client.ts";
import { ObjectCache } from "../../../src/client/object-cache/object-cache.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { untilSeen } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import { put } from "../../storage/conformance/opened.ts";
import { CachedServer } from "../cached-server.ts";
import { keptOpen } from "../kept-open.ts";

/**
 * A client of as many replicas over one store, each behind a relay, with watches, an informer and an object cache. The
 * clock of the client stands still, and its jitter is the minimum.
 */
async function following(replicas: number) {
  const store = new MemoryStorage({ clock: systemClock });
  const servers: CachedServer[] = [];
  const relays: Relay[] = [];
  for (let i = 0; i < replicas; i++) {
    const server = await CachedServer.over(keptOpen(store));
    servers.push(server);
    relays.push(await Relay.to(server.port));
  }
  const clock = new FakeClock();
  const address = relays.map(({ port }) => `127.0.0.1:${port}`);
  const client = connect({ address, clock, random: () => 0 });
  const things = client.resource("things", jsonValues<number>());
  const { codec } = things;
  const cache = new ObjectCache({
    client,
    resource: "things",
    codec,
    clock,
    random: () => 0,
    syncTimeoutMs: 0,
  });
  const informer = things.informer({ onWatchError: () => {} });
  const seen: number[] = [];
  const stop = new AbortController();
  let interruptions = 0;
  const watch = async (i: number): Promise<void> => {
    const batches = things.watch({
      ...{ sendInitialEvents: true, signal: stop.signal },
      onInterruption: () => interruptions++,
    });
    for await (const { events } of batches) {
      for (const event of events) if (event.type !== "DELETED") seen[i] = event.object.value;
    }
  };
  await store.txn([put("a", "0")]);
  const watches = Array.from({ length: 10 }, (_, i) => watch(i));
  cache.addReference("a");
  informer.start();
  /** Resolves when everything has this value of the object, while no time passes. */
  const untilAllHave = (value: number) =>
    untilSeen(`${value} everywhere`, async () => {
      clock.advance(0);
      const cached = await cache.get("a").catch(() => undefined);
      const all = [
        ...Array.from(watches, (_, i) => seen[i]),
        cached?.value,
        informer.indexer.get("a")?.value,
      ];
      return all.every((each) => each === value) ? true : undefined;
    });
  onTestFinished(async () => {
    stop.abort();
    await Promise.all([cache.close(), informer.stop(), ...watches]);
    client.close();
    for (const relay of relays) await relay.close();
    for (const server of servers) await server.close();
  });
  await untilAllHave(0);
  return { store, clock, relays, client, untilAllHave, interruptions: () => interruptions };
}

describe("Watches, an informer and an object cache", () => {
  test("are level as soon as a connection is ready again after an outage, whatever their pauses are.", async () => {
    const { store, clock, relays, untilAllHave, interruptions } = await following(1);
    relays[0]?.refuse();
    // Until the pauses are at their maximum.
    await untilSeen("eight failures of each watch", async () => {
      clock.advance(10_000);
      return interruptions() >= 80 ? true : undefined;
    });
    await store.txn([put("a", "1")]);
    relays[0]?.heal();
    await untilAllHave(1);
  });

  test("continue at once at another replica that is ready.", async () => {
    const { store, relays, client, untilAllHave } = await following(2);
    // So that both have a connection.
    for (let i = 0; i < 4; i++) await client.page("things");
    relays[0]?.refuse();
    await store.txn([put("a", "1")]);
    await untilAllHave(1);
  });
});

test("A connection that breaks whenever it is ready ends pauses only once in 10 s.", async () => {
  const { clock, relays, client } = await following(1);
  const [relay] = relays;
  let notified = 0;
  const leave = client.reachability.onReady(() => notified++);
  const cut = async (): Promise<void> => {
    const before = relay?.accepted ?? 0;
    relay?.cut();
    await untilSeen("another connection", async () => {
      clock.advance(0);
      return (relay?.accepted ?? 0) > before && (relay?.passed ?? 0) > 0 ? true : undefined;
    });
  };
  for (let i = 0; i < 5; i++) await cut();
  await client.page("things");
  expect(notified).toBe(1);
  clock.advance(10_000);
  await cut();
  await untilSeen("another notification", async () => (notified === 2 ? true : undefined));
  leave();
});
