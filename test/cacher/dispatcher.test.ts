import { expect, it } from "vitest";
import { BusyClock } from "./busy-clock.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const watchers = 300;
const events = 40;

it("A round asks no more of its watchers' selectors than a slice has time for, and the next goes on", async () => {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
  const seen = { looks: 0 };
  const streams = Array.from({ length: watchers }, () =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: true,
      predicate: () => {
        seen.looks++;
        return true;
      },
    }),
  );
  await cached.clock.settle();
  for (const stream of streams) readAll(stream);
  for (let i = 0; i < events; i++) {
    await cached.store.put({ key: `k${i}`, value: new Uint8Array() });
  }
  let all = 0;
  for (let turns = 0; cached.cacher.stats().dispatchedEvents < watchers * events; turns++) {
    expect(turns).toBeLessThan(watchers * events);
    seen.looks = 0;
    cached.clock.runTurn();
    await Promise.resolve();
    // It looks at the clock after 512 asks, all of an event at once.
    expect(seen.looks).toBeLessThanOrEqual(4 * (512 + watchers));
    all += seen.looks;
  }
  expect(all).toBe(watchers * events);
  for (const stream of streams) {
    const told = readAll(stream).flatMap((batch) => batch.split(" ").slice(0, -1));
    expect(told).toEqual(Array.from({ length: events }, (_, i) => `ADDED:k${i}=@${i + 2}`));
  }
});
