import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { connect } from "../../../src/client/connect.ts";
import { jsonValues } from "../../../src/client/values/value-codec.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { untilSeen } from "../../faults/patience.ts";
import { Relay } from "../../faults/relay.ts";
import { put } from "../../storage/conformance/opened.ts";
import { CachedServer } from "../cached-server.ts";
import { Followers } from "../followers.ts";
import { keptOpen } from "../kept-open.ts";

/** A client of as many replicas over one store, each behind a relay. */
async function following(replicas: number) {
  const store = new MemoryStorage({ clock: systemClock });
  const servers: CachedServer[] = [];
  const relays: Relay[] = [];
  for (let i = 0; i < replicas; i++) {
    const server = await CachedServer.over(keptOpen(store));
    servers.push(server);
    relays.push(await Relay.to(server.port));
  }
  await store.txn([put("a", "0")]);
  const followers = new Followers(relays.map(({ port }) => `127.0.0.1:${port}`));
  onTestFinished(async () => {
    await followers.close();
    for (const relay of relays) await relay.close();
    for (const server of servers) await server.close();
  });
  await followers.untilAllHave(0);
  const { client, clock } = followers;
  return { store, clock, relays, client, followers };
}

describe("Watches, an informer and an object cache", () => {
  test("have synced as soon as a connection is ready again after an outage, whatever their pauses are.", async () => {
    const { store, relays, followers } = await following(1);
    relays[0]?.refuse();
    await followers.untilFailed(8);
    await store.txn([put("a", "1")]);
    relays[0]?.heal();
    await followers.untilAllHave(1);
  });

  test("continue at once at another replica that is ready.", async () => {
    const { store, relays, client, followers } = await following(2);
    // So that both have a connection.
    for (let i = 0; i < 4; i++) await client.page("things");
    relays[0]?.refuse();
    await store.txn([put("a", "1")]);
    await followers.untilAllHave(1);
  });
});

test.each(["client", "subscription"] as const)(
  "Every watch and informer of a %s that pauses is woken when the connection is ready, whatever is left of its pause.",
  async (kind) => {
    const store = new MemoryStorage({ clock: systemClock });
    const server = await CachedServer.over(keptOpen(store));
    const relay = await Relay.to(server.port);
    const clock = new FakeClock();
    const address = `127.0.0.1:${relay.port}`;
    const client = connect({ address, clock, random: () => 0, connectTimeoutMs: 60_000 });
    const stopping = new AbortController();
    onTestFinished(async () => {
      stopping.abort();
      client.close();
      await relay.close();
      await server.close();
    });
    const calls = kind === "client" ? client : client.subscribe();
    const things = calls.resource("things", jsonValues<number>());
    /** When the pause of each ends, by the clock. */
    const pausedUntil = new Map<unknown, number>();
    const pausing = (who: unknown) => (pauseMs: number) => {
      pausedUntil.set(who, clock.now() + pauseMs);
    };
    const informers = [things, client.resource("things", things.codec)].map((each) => {
      const informer = each.informer({
        onWatchError: ({ pauseMs }) => pausing(informer)(pauseMs),
      });
      informer.start();
      return informer;
    });
    const seen: number[] = [];
    const watch = async (i: number): Promise<void> => {
      const pause = pausing(i);
      const options = {
        ...{ signal: stopping.signal, sendInitialEvents: true },
        onInterruption: ({ delayMs }: { readonly delayMs: number }) => pause(delayMs),
      };
      for await (const { events } of things.watch(options)) {
        for (const event of events) if (event.type !== "DELETED") seen[i] = event.object.value;
      }
    };
    for (let i = 0; i < 5; i++) void watch(i).catch(() => {});
    const untilAllHave = (value: number, maxMs: number, stepMs: number) => {
      const start = clock.now();
      return untilSeen(`${value} everywhere`, async () => {
        if (clock.now() - start < maxMs) clock.advance(stepMs);
        const informed = informers.map(({ indexer }) => indexer.get("a")?.value);
        const all = [...informed, ...Array.from({ length: 5 }, (_, i) => seen[i])];
        return all.every((each) => each === value) ? true : undefined;
      });
    };
    await store.txn([put("a", "0")]);
    await untilAllHave(0, 60_000, 10);
    relay.refuse();
    await untilSeen("all to pause for at least 1.5 s more", async () => {
      const isPausing = (until: number): boolean => until - clock.now() > 1_500;
      if (pausedUntil.size === 7 && [...pausedUntil.values()].every(isPausing)) return true;
      clock.advance(50);
      return undefined;
    });
    await store.txn([put("a", "1")]);
    relay.heal();
    // Less than what is left of each pause, and so slowly that the connection is ready long before.
    await untilAllHave(1, 1_400, 1);
    for (const informer of informers) await informer.stop();
  },
);

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
  let isServed = false;
  const served = client.page("things").then(() => (isServed = true));
  // Its pauses are a tenth of a second.
  await untilSeen("a response", async () => {
    clock.advance(10);
    return isServed ? true : undefined;
  });
  await served;
  expect(notified).toBe(1);
  clock.advance(10_000);
  await cut();
  await untilSeen("another notification", async () => (notified === 2 ? true : undefined));
  leave();
});
