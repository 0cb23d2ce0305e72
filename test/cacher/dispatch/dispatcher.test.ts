import { expect, it } from "vitest";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import type { Codec } from "../../../src/codec/codec.ts";
import { Attributes } from "../../../src/selector/attributes.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { CachedStore, readAll, silent } from "../cached-store.ts";

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

/** All events that wait, without the resume points between them. */
function eventsOf(stream: CacheWatcher): string[] {
  return readAll(stream).flatMap((batch) => batch.split(" ").slice(0, -1));
}

/** Labels that note how often one of them was asked for. */
class CountingLabels extends Map<string, string> {
  asked = 0;

  override get(name: string): string | undefined {
    this.asked++;
    return super.get(name);
  }
}

it("One event is asked of groups in slices: by how many requirements they have", async () => {
  const clock = new BusyClock();
  const labels = new CountingLabels([["some", "label"]]);
  const codec: Codec = {
    name: "json",
    hasAttributes: true,
    declaredFields: new Set(),
    attributesOf: () => new Attributes(labels, new Map()),
  };
  const attributes = new AttributeReader(codec, clock, silent);
  const options = { attributes, consistencyIntervalMs: 0 };
  const cached = await CachedStore.ready(options, clock);
  // Few enough that each is held against the event by itself.
  const requirements = Array.from({ length: 7 }, (_, i) => `!k${i}`).join(",");
  const streams = Array.from({ length: 1_000 }, (_, i) =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: false,
      selection: cached.cacher.select(`!own-${i},${requirements}`, ""),
    }),
  );
  await clock.settle();
  for (const stream of streams) readAll(stream);
  labels.asked = 0;
  await cached.store.put({ key: "k", value: Buffer.from("{}") });
  let all = 0;
  for (let turns = 0; cached.cacher.stats().dispatchedEvents < streams.length; turns++) {
    expect(turns).toBeLessThan(1_000);
    labels.asked = 0;
    clock.runTurn();
    await Promise.resolve();
    // Of a slice of four looks at the clock, with 512 requirements between two, and the last selector.
    expect(labels.asked).toBeLessThanOrEqual(4 * (512 + 8));
    all += labels.asked;
  }
  expect(all).toBe(streams.length * 8);
  for (const stream of streams) expect(readAll(stream)).toEqual(["ADDED:k={}@2 →2"]);
});

/** A clock that stands still, and of which one single look says that it is much later. */
class JumpyClock extends FakeClock {
  #looks = 0;
  #jumpAt = 0;

  override now(): number {
    return super.now() + (++this.#looks === this.#jumpAt ? 1_000 : 0);
  }

  /** The look that says so is this many from now. */
  jumpAfter(looks: number): void {
    this.#jumpAt = this.#looks + looks;
  }
}

it("Who joins while a revision is asked of groups gets the next one, however fast that goes", async () => {
  const clock = new JumpyClock();
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, clock);
  let asked = 0;
  const watch = (): CacheWatcher =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: true,
      // As many groups as watchers.
      predicate: () => {
        asked++;
        return true;
      },
    });
  const live = Array.from({ length: 1_000 }, watch);
  const joining = watch();
  await clock.settle();
  for (const stream of live) readAll(stream);
  // They come in one batch, so that one round would take up all three.
  for (const key of ["a", "b", "c"]) void cached.store.put({ key, value: new Uint8Array() });
  asked = 0;
  for (let turns = 0; asked === 0; turns++) {
    expect(turns).toBeLessThan(10);
    await new Promise((resolve) => setImmediate(resolve));
    // Begins its slice, then to collect, and finds its slice over at the first look after that.
    clock.jumpAfter(3);
    clock.runTurn();
  }
  expect(asked).toBeLessThan(live.length);
  const events = eventsOf(joining);
  expect([joining.state, events]).toEqual(["live", ["ADDED:a=@2"]]);
  await clock.settle();
  events.push(...eventsOf(joining));
  expect(events).toEqual(["ADDED:a=@2", "ADDED:b=@3", "ADDED:c=@4"]);
  for (const stream of live) expect(eventsOf(stream)).toEqual(events);
});

it("Watchers that come, go and lag while one event is asked of groups miss nothing and see nothing twice", async () => {
  const clock = new BusyClock();
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, clock);
  const watch = (): CacheWatcher =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: true,
      // As many groups as watchers.
      predicate: () => true,
    });
  const seen = new Map<CacheWatcher, string[]>();
  const open = (count: number): void => {
    for (let i = 0; i < count; i++) seen.set(watch(), []);
  };
  const readSome = (): void => {
    let i = 0;
    for (const [stream, events] of seen) {
      if (i++ % 3 > 0) events.push(...eventsOf(stream));
    }
  };
  open(600);
  await clock.settle();
  readSome();
  for (let i = 0; i < 30; i++) {
    await cached.store.put({ key: `k${i}`, value: new Uint8Array() });
    for (let turns = 0; turns < 3; turns++) {
      clock.runTurn();
      await Promise.resolve();
      readSome();
      open(5);
      const [first] = seen.keys();
      if (first !== undefined && i % 2 === 0) {
        first.close();
        seen.delete(first);
      }
    }
  }
  const last = "k29=@31";
  const isBehind = (): boolean =>
    [...seen.values()].some((events) => !events.join(" ").includes(last));
  for (let rounds = 0; isBehind(); rounds++) {
    expect(rounds).toBeLessThan(1_000);
    await clock.settle();
    for (const [stream, events] of seen) events.push(...eventsOf(stream));
  }
  const told = [...seen.values()].map((events) => events.join(" "));
  const all = Array.from({ length: 30 }, (_, i) => `ADDED:k${i}=@${i + 2}`).join(" ");
  expect(new Set(told)).toEqual(new Set([all]));
});
