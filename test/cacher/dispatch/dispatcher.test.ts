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

it("A round evaluates selectors for one time slice at most, and the next round continues", async () => {
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, new BusyClock());
  const seen = { evaluations: 0 };
  const streams = Array.from({ length: watchers }, () =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: true,
      predicate: () => {
        seen.evaluations++;
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
    seen.evaluations = 0;
    cached.clock.runTurn();
    await Promise.resolve();
    // It reads the clock after 512 evaluations. One event is evaluated against all groups of a place in one go.
    expect(seen.evaluations).toBeLessThanOrEqual(4 * (512 + watchers));
    all += seen.evaluations;
  }
  expect(all).toBe(watchers * events);
  for (const stream of streams) {
    const delivered = readAll(stream).flatMap((batch) => batch.split(" ").slice(0, -1));
    expect(delivered).toEqual(Array.from({ length: events }, (_, i) => `ADDED:k${i}=@${i + 2}`));
  }
});

/** All pending events, without the resume points between them. */
function eventsOf(stream: CacheWatcher): string[] {
  return readAll(stream).flatMap((batch) => batch.split(" ").slice(0, -1));
}

/** Labels that count reads. */
class CountingLabels extends Map<string, string> {
  evaluated = 0;

  override get(name: string): string | undefined {
    this.evaluated++;
    return super.get(name);
  }
}

it("One event is evaluated in time slices, by the number of requirements of its groups", async () => {
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
  // Few enough that each is evaluated by itself.
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
  labels.evaluated = 0;
  await cached.store.put({ key: "k", value: Buffer.from("{}") });
  let all = 0;
  for (let turns = 0; cached.cacher.stats().dispatchedEvents < streams.length; turns++) {
    expect(turns).toBeLessThan(1_000);
    labels.evaluated = 0;
    clock.runTurn();
    await Promise.resolve();
    // A slice lasts for four reads of the clock, with 512 requirements and the rest of a selector between two.
    expect(labels.evaluated).toBeLessThanOrEqual(4 * (512 + 8));
    all += labels.evaluated;
  }
  expect(all).toBe(streams.length * 8);
  for (const stream of streams) expect(readAll(stream)).toEqual(["ADDED:k={}@2 →2"]);
});

/** A clock that stands still, except that a single read returns a much later time. */
class JumpyClock extends FakeClock {
  #reads = 0;
  #jumpAt = 0;

  override now(): number {
    return super.now() + (++this.#reads === this.#jumpAt ? 1_000 : 0);
  }

  /** The read after so many more returns the later time. */
  jumpAfter(reads: number): void {
    this.#jumpAt = this.#reads + reads;
  }
}

it("A watcher that joins while a revision is evaluated gets the next revision in a later round", async () => {
  const clock = new JumpyClock();
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, clock);
  let evaluated = 0;
  const watch = (): CacheWatcher =>
    cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: 1,
      withPrevious: true,
      // As many groups as watchers.
      predicate: () => {
        evaluated++;
        return true;
      },
    });
  const live = Array.from({ length: 1_000 }, watch);
  const joining = watch();
  await clock.settle();
  for (const stream of live) readAll(stream);
  // They arrive in one batch, so that one round could take all three.
  for (const key of ["a", "b", "c"]) void cached.store.put({ key, value: new Uint8Array() });
  evaluated = 0;
  for (let turns = 0; evaluated === 0; turns++) {
    expect(turns).toBeLessThan(10);
    await new Promise((resolve) => setImmediate(resolve));
    // Reads the clock at the start of its slice and of collecting, and finds the slice over at the next read.
    clock.jumpAfter(3);
    clock.runTurn();
  }
  expect(evaluated).toBeLessThan(live.length);
  const events = eventsOf(joining);
  expect([joining.state, events]).toEqual(["live", ["ADDED:a=@2"]]);
  // The round has taken a second by this clock, so the next one waits.
  await clock.elapse(20);
  events.push(...eventsOf(joining));
  expect(events).toEqual(["ADDED:a=@2", "ADDED:b=@3", "ADDED:c=@4"]);
  for (const stream of live) expect(eventsOf(stream)).toEqual(events);
});

it("Watchers that join, leave and stall while one event is evaluated receive every event once", async () => {
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
  const isMissing = (): boolean =>
    [...seen.values()].some((events) => !events.join(" ").includes(last));
  for (let rounds = 0; isMissing(); rounds++) {
    expect(rounds).toBeLessThan(1_000);
    await clock.settle();
    for (const [stream, events] of seen) events.push(...eventsOf(stream));
  }
  const delivered = [...seen.values()].map((events) => events.join(" "));
  const all = Array.from({ length: 30 }, (_, i) => `ADDED:k${i}=@${i + 2}`).join(" ");
  expect(new Set(delivered)).toEqual(new Set([all]));
});
