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
/** A slice ends at the fourth read of the clock. Between two reads are 256 events and the rest of a revision. */
const mostInOneTurn = 4 * (256 + perRevision);

/** A store with many events, and watches that evaluate all of them to find a single one. */
async function manyFilters() {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
  for (let i = 0; i < events; i += perRevision) {
    await cached.write(
      ...Array.from({ length: perRevision }, (_, j) => [`k${i + j}`, ""] as const),
    );
  }
  const seen = { evaluations: 0 };
  const open = (i: number, delivery: Delivery): CacheWatcher =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: true,
      delivery,
      predicate: ({ key }) => {
        seen.evaluations++;
        return key === `k${i}`;
      },
    });
  return { cached, seen, open };
}

/** Reads batches as they arrive. */
function follow(stream: CacheWatcher): string[] {
  const batches: string[] = [];
  const readOn = (): void => {
    for (let batch = read(stream); batch !== undefined; batch = read(stream)) batches.push(batch);
  };
  stream.onReadable(readOn);
  readOn();
  return batches;
}

it.each<Delivery>(["EVERY_EVENT", "LATEST_STATE"])(
  "All watchers that catch up with %s share one time slice per turn of the event loop",
  async (delivery) => {
    const { cached, seen, open } = await manyFilters();
    const watchers = Array.from({ length: streams }, (_, i) => open(i, delivery));
    await cached.clock.settle();
    const delivered = watchers.map(follow);
    for (let turns = 0; ; turns++) {
      expect(seen.evaluations).toBeLessThanOrEqual(mostInOneTurn);
      if (cached.clock.pendingImmediates === 0) break;
      expect(turns).toBeLessThan(streams * events);
      seen.evaluations = 0;
      cached.clock.runTurn();
    }
    const last = events / perRevision + 1;
    for (const [i, batches] of delivered.entries()) {
      expect(watchers[i]?.state).toBe("live");
      expect(batches[0]).toBe("→1");
      expect(batches.filter((batch) => batch.includes("ADDED")).join()).toContain(`ADDED:k${i}=@`);
      expect(batches.at(-1)).toMatch(delivery === "LATEST_STATE" ? `→${last}` : "→");
    }
    await cached.write(["k0", "now"]);
    expect(delivered[0]?.at(-1)).toBe(`MODIFIED:k0=now()@${last + 1} →${last + 1}`);
  },
);

it("A watcher that waits for its time slice is not notified before, and does not count as stalled", async () => {
  const { cached, open } = await manyFilters();
  const [first, other] = [open(1_990, "EVERY_EVENT"), open(1_991, "EVERY_EVENT")];
  await cached.clock.settle();
  expect([read(first), read(other)]).toEqual(["→1", "→1"]);
  expect([read(first), read(other)]).toEqual([undefined, undefined]);
  expect([first.state, other.state]).toEqual(["catching up", "catching up"]);
  expect([first.hasPending, other.hasPending]).toEqual([false, false]);
  let notified = 0;
  other.onReadable(() => notified++);
  cached.clock.runImmediates();
  expect(notified).toBe(1);
  other.close();
  first.close();
  cached.clock.runImmediates();
  expect([notified, other.ended, first.ended]).toEqual([1, null, null]);
});

it.each<Delivery>(["EVERY_EVENT", "LATEST_STATE"])(
  "A time slice ends earlier the more requirements each event is evaluated against, with %s",
  async (delivery) => {
    const seen = { evaluations: 0 };
    const codec: Codec = {
      name: "json",
      declaredFields: new Set(),
      attributesOf: () => noAttributes,
      get hasAttributes() {
        seen.evaluations++;
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
    seen.evaluations = 0;
    watchers.forEach(follow);
    for (let turns = 0; ; turns++) {
      // The clock is read after 256 evaluated requirements.
      expect(seen.evaluations).toBeLessThanOrEqual(4 * (256 / cost + 1));
      if (clock.pendingImmediates === 0) break;
      expect(turns).toBeLessThan(watchers.length * 500);
      seen.evaluations = 0;
      clock.runTurn();
    }
    expect(watchers.map(({ state }) => state)).toEqual(watchers.map(() => "live"));
  },
);
