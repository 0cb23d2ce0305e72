import { expect, it } from "vitest";
import type { Delivery } from "../../../src/cacher/request/request.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import type { Codec } from "../../../src/codec/codec.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { BusyClock } from "../busy-clock.ts";
import { CachedStore, read, silent } from "../cached-store.ts";

const streams = 40;
const events = 2_000;
const perRevision = 20;
/** A slice is over at the fourth look at the clock, between which are 256 events and the rest of a revision. */
const mostInOneTurn = 4 * (256 + perRevision);

/** A store with many events, of which each of so many filters looks at all to find a single one. */
async function manyFilters() {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
  for (let i = 0; i < events; i += perRevision) {
    await cached.write(
      ...Array.from({ length: perRevision }, (_, j) => [`k${i + j}`, ""] as const),
    );
  }
  const seen = { looks: 0 };
  const open = (i: number, delivery: Delivery): CacheWatcher =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: true,
      delivery,
      predicate: ({ key }) => {
        seen.looks++;
        return key === `k${i}`;
      },
    });
  return { cached, seen, open };
}

/** Reads what comes, whenever it comes. */
function follow(stream: CacheWatcher): string[] {
  const told: string[] = [];
  const readOn = (): void => {
    for (let batch = read(stream); batch !== undefined; batch = read(stream)) told.push(batch);
  };
  stream.onReadable(readOn);
  readOn();
  return told;
}

it.each<Delivery>(["EVERY_EVENT", "LATEST_STATE"])(
  "All who catch up with %s share a slice of each turn of the event loop, whatever they have to look at",
  async (delivery) => {
    const { cached, seen, open } = await manyFilters();
    const watchers = Array.from({ length: streams }, (_, i) => open(i, delivery));
    await cached.clock.settle();
    const told = watchers.map(follow);
    for (let turns = 0; ; turns++) {
      expect(seen.looks).toBeLessThanOrEqual(mostInOneTurn);
      if (cached.clock.pendingImmediates === 0) break;
      expect(turns).toBeLessThan(streams * events);
      seen.looks = 0;
      cached.clock.runTurn();
    }
    const last = events / perRevision + 1;
    for (const [i, batches] of told.entries()) {
      expect(watchers[i]?.state).toBe("live");
      expect(batches[0]).toBe("→1");
      expect(batches.filter((batch) => batch.includes("ADDED")).join()).toContain(`ADDED:k${i}=@`);
      expect(batches.at(-1)).toMatch(delivery === "LATEST_STATE" ? `→${last}` : "→");
    }
    await cached.write(["k0", "now"]);
    expect(told[0]?.at(-1)).toBe(`MODIFIED:k0=now()@${last + 1} →${last + 1}`);
  },
);

it("Who catches up waits for others without being told of it, and is not taken for one who takes nothing", async () => {
  const { cached, open } = await manyFilters();
  const [first, other] = [open(1_990, "EVERY_EVENT"), open(1_991, "EVERY_EVENT")];
  await cached.clock.settle();
  expect([read(first), read(other)]).toEqual(["→1", "→1"]);
  expect([read(first), read(other)]).toEqual([undefined, undefined]);
  expect([first.state, other.state]).toEqual(["catching up", "catching up"]);
  expect([first.hasPending, other.hasPending]).toEqual([false, false]);
  let told = 0;
  other.onReadable(() => told++);
  cached.clock.runImmediates();
  expect(told).toBe(1);
  other.close();
  first.close();
  cached.clock.runImmediates();
  expect([told, other.ended, first.ended]).toEqual([1, null, null]);
});

it.each<Delivery>(["EVERY_EVENT", "LATEST_STATE"])(
  "A slice is over the sooner the more requirements each event is held against, with %s",
  async (delivery) => {
    const seen = { looks: 0 };
    const codec: Codec = {
      name: "json",
      declaredFields: new Set(),
      attributesOf: () => noAttributes,
      get hasAttributes() {
        seen.looks++;
        return true;
      },
    };
    const clock = new BusyClock();
    const attributes = new AttributeReader(codec, clock, silent);
    const cached = await CachedStore.ready({ attributes, consistencyIntervalMs: 0 }, clock);
    for (let i = 0; i < 500; i++) await cached.write([`k${i}`, ""]);
    const requirements = Array.from({ length: 63 }, (_, i) => `!k${i}`).join(",");
    const watchers = Array.from({ length: 10 }, (_, i) =>
      cached.cacher.watch({
        scope: { prefix: "" },
        afterRevision: 1,
        withPrevious: false,
        delivery,
        selection: cached.cacher.select(`own-${i},${requirements}`, ""),
      }),
    );
    const cost = watchers[0]?.filter.cost ?? 0;
    expect(cost).toBeGreaterThan(8);
    await clock.settle();
    seen.looks = 0;
    watchers.forEach(follow);
    for (let turns = 0; ; turns++) {
      // The clock is looked at after so many events as 256 requirements are held against.
      expect(seen.looks).toBeLessThanOrEqual(4 * (256 / cost + 1));
      if (clock.pendingImmediates === 0) break;
      expect(turns).toBeLessThan(watchers.length * 500);
      seen.looks = 0;
      clock.runTurn();
    }
    expect(watchers.map(({ state }) => state)).toEqual(watchers.map(() => "live"));
  },
);
