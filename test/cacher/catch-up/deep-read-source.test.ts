import { describe, expect, it } from "vitest";
import { revisionTooOld } from "../../../src/base/errors.ts";
import { DeepRead } from "../../../src/cacher/catch-up/deep-read.ts";
import { Projection } from "../../../src/cacher/request/projection.ts";
import { RecentlyShown } from "../../../src/cacher/request/recently-shown.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { WatchBatch, type WatchEvent } from "../../../src/model/event.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import { BusyClock } from "../busy-clock.ts";
import { event } from "../objects.ts";
import { short, World } from "./source-world.ts";

const eventBytes = event("ADDED", "a", 2).estimatedBytes;

/** A watch of the store whose batches the test delivers. */
class StoreWatch implements WatchStream {
  ended: Error | null | undefined;
  readonly #batches: WatchBatch[] = [];
  #listener: () => void = () => {};
  #isWaiting = false;

  read(): WatchBatch | undefined {
    const batch = this.#batches.shift();
    this.#isWaiting = batch === undefined;
    return batch;
  }

  onReadable(listener: () => void): void {
    this.#listener = listener;
  }

  close(): void {
    this.ended = null;
  }

  /** Delivers `"b@3"` as an event of that key and revision, and in the end a resume point. */
  put(revision: number, ...events: readonly string[]): void {
    const all = events.map((each) => {
      const [key = "", at] = each.split("@");
      return event("ADDED", key, Number(at));
    });
    this.putAll(revision, ...all);
  }

  putAll(revision: number, ...events: readonly WatchEvent[]): void {
    this.#batches.push(new WatchBatch(revision, events));
    if (this.#isWaiting) this.notify();
  }

  end(error: Error): void {
    this.ended = error;
    if (this.#isWaiting) this.notify();
  }

  get waits(): number {
    return this.#batches.length;
  }

  /** Calls the listener even if it does not have to. */
  notify(): void {
    this.#isWaiting = false;
    this.#listener();
  }
}

/** Deep reads after revision 1 of a world whose window has the revisions 6 to 13: they read the store up to 10. */
class DeepWorld {
  readonly clock: FakeClock;
  readonly world: World;
  readonly store = new StoreWatch();
  readonly failures: unknown[] = [];
  /** What confirms the history. */
  readonly confirmed = Promise.withResolvers<void>();

  constructor(bounds: ConstructorParameters<typeof World>[0] = {}, clock = new FakeClock()) {
    this.clock = clock;
    this.world = new World(bounds, clock);
    this.world.write(..."abcdefghijkl");
  }

  begin(request: Partial<CacheWatchRequest> = {}, onStep?: () => void, store = this.store) {
    const { clock, world, failures, confirmed } = this;
    const source = new MemoryStorage({ clock });
    source.watch = () => store;
    source.requestProgress = () => {};
    const reader = world.reader(request, onStep);
    const read = new DeepRead(reader, {
      component: { source, cache: world.cache },
      ...{ sources: world.context, scope: { prefix: "" }, after: 1 },
      refuse: () => undefined,
      confirmHistory: (signal) => {
        const aborted = Promise.withResolvers<void>();
        signal.addEventListener("abort", () => aborted.reject(signal.reason));
        return Promise.race([confirmed.promise, aborted.promise]);
      },
      fail: (error) => failures.push(error),
      release: () => {},
    });
    let isOpened = false;
    void read.begin().then(() => {
      isOpened = true;
    });
    return { reader, read, isOpened: () => isOpened };
  }

  /** One that has taken the first batch, of a confirmed history. */
  async started(request: Partial<CacheWatchRequest>, revision: number, ...events: string[]) {
    this.store.put(revision, ...events);
    const begun = this.begin(request);
    this.confirmed.resolve();
    await this.clock.settle();
    return begun;
  }
}

describe("A deep read", () => {
  it("takes what the store has at once, and delivers it once the history is confirmed", async () => {
    const { clock, store, confirmed, begin } = bound(new DeepWorld());
    store.put(3, "a@2", "b@3");
    const { read, reader, isOpened } = begin();
    store.put(4, "c@4");
    await clock.settle();
    expect([read.next(), reader.notified, isOpened(), store.waits]).toEqual([
      ...[undefined, 0, false, 1],
    ]);
    confirmed.resolve();
    await clock.settle();
    expect([reader.notified, isOpened()]).toEqual([1, true]);
    // It takes the next one only now.
    expect(store.waits).toBe(1);
    expect(short(read.next())).toBe("a b →3");
    await clock.settle();
    expect([reader.notified, store.waits, short(read.next())]).toEqual([2, 0, "c →4"]);
    expect(read.next()).toBeUndefined();
  });

  it("takes a batch once it has delivered the one before, however often the store notifies it", async () => {
    const deep = new DeepWorld({ batchBytes: eventBytes });
    const { store, clock } = deep;
    const { read, reader } = await deep.started({}, 3, "a@2", "b@3");
    expect(short(read.next())).toBe("a →2");
    for (const key of ["c@4", "d@5"]) store.put(Number(key.split("@")[1]), key);
    store.notify();
    expect([store.waits, short(read.next())]).toEqual([2, "b →3"]);
    // It takes one, and waits until the history is confirmed.
    store.notify();
    await clock.settle();
    expect([store.waits, reader.notified, short(read.next())]).toEqual([1, 2, "c →4"]);
    await clock.settle();
    expect(short(read.next())).toBe("d →5");
    store.put(6, "e@6");
    await clock.settle();
    expect([reader.notified, short(read.next())]).toEqual([4, "e →6"]);
  });

  it("ends with what keeps the history from being confirmed, but not after it was dropped", async () => {
    const failure = new Error("another history");
    for (const isDropped of [false, true]) {
      const { clock, store, confirmed, failures, begin } = bound(new DeepWorld());
      store.put(3, "a@2");
      const { read, reader } = begin();
      if (isDropped) read.drop();
      await clock.settle();
      confirmed.reject(failure);
      await clock.settle();
      expect(failures).toEqual(isDropped ? [] : [failure]);
      expect([reader.notified, read.next()]).toEqual([0, undefined]);
    }
  });

  it("ends with the store's watch, and if that is too old names what the window has", () => {
    const away = new Error("away");
    for (const [error, expected] of [
      [away, away],
      [revisionTooOld(1, 20), revisionTooOld(1, 5)],
      [revisionTooOld(1, 3), revisionTooOld(1, 3)],
    ] as const) {
      const { store, failures, begin } = bound(new DeepWorld());
      begin();
      expect(failures).toEqual([]);
      store.end(error);
      expect(failures).toEqual([expected]);
      expect((failures[0] as { metadata?: unknown }).metadata).toEqual(
        (expected as { metadata?: unknown }).metadata,
      );
    }
  });

  it("delivers parts that end at their bound in bytes, between two revisions", async () => {
    const deep = new DeepWorld({ batchBytes: 2 * eventBytes });
    const events = ["a@3", "b@3", "c@3", "d@4", "e@5", "f@5", "g@6"];
    const { read } = await deep.started({}, 7, ...events);
    expect([1, 2, 3].map(() => short(read.next()))).toEqual(["a b c →3", "d e f →5", "g →7"]);
    expect(read.next()).toBeUndefined();
  });

  it("delivers a resume point for each 3 events that its filter leaves out, if it may scan as many", async () => {
    const deep = new DeepWorld({ scanEvents: 3 });
    const events = ["a@2", "b@3", "c@4", "d@5", "e@6", "f@7", "g@8"];
    const { read } = await deep.started({ predicate: () => false }, 8, ...events);
    expect([1, 2].map(() => short(read.next()))).toEqual(["→4", "→7"]);
    expect([read.next(), deep.world.context.turns.size]).toEqual([undefined, 0]);
  });

  it("leaves out the keys outside of its scope, and the types that are not asked for", async () => {
    const events = ["a1@2", "b1@3", "a2@4"];
    const scoped = await new DeepWorld().started({ scope: { prefix: "a" } }, 4, ...events);
    expect(short(scoped.read.next())).toBe("a1 a2 →4");
    const deletions = await new DeepWorld().started({ eventTypes: ["DELETED"] }, 4, ...events);
    expect(deletions.read.next()).toBeUndefined();
  });

  it("leaves what is beyond the middle of the window to the window", async () => {
    const deep = new DeepWorld();
    const { read } = await deep.started({}, 12, "h@9", "i@10", "j@11", "k@12");
    expect(read.successor).toBeUndefined();
    expect(short(read.next())).toBe("h i →10 done");
    expect(short(read.successor?.next())).toBe("j k l →13 done");
  });

  it("delivers one large event in a time slice that is over by then", async () => {
    const clock = new BusyClock();
    const deep = new DeepWorld({}, clock);
    const value = "x".repeat(8 * 256);
    deep.store.putAll(4, event("ADDED", "a", 3, value), event("ADDED", "b", 4, value));
    const view = new Projection("whole", 0, (object) => object, new RecentlyShown());
    const { read } = deep.begin({ view });
    deep.confirmed.resolve();
    await clock.settle();
    // The clock advances by a millisecond as it is read: there is time to begin, and none for another event.
    expect(deep.world.context.turns.isOver).toBe(false);
    expect(short(read.next())).toBe("a →3");
  });

  it("waits for its time slice as one of its owner's watchers", async () => {
    const clock = new BusyClock();
    const deep = new DeepWorld({}, clock);
    deep.confirmed.resolve();
    const served: string[] = [];
    const begin = (name: string, owner: object) => {
      const store = new StoreWatch();
      store.put(2, "a@2");
      return deep.begin({ owner }, () => served.push(name), store).read;
    };
    const [greedy, modest] = [{}, {}];
    const reads = [1, 2, 3, 4, 5].map((i) => begin(`greedy-${i}`, greedy));
    reads.push(begin("modest", modest));
    await clock.settle();
    while (!deep.world.context.turns.isOver);
    expect(reads.map((read) => read.next())).toEqual(reads.map(() => undefined));
    clock.runImmediates();
    expect(served).toHaveLength(6);
    expect(served.indexOf("modest")).toBe(1);
  });
});

/** The world, with a `begin` that can be taken out of it. */
function bound(deep: DeepWorld) {
  const { clock, store, confirmed, failures } = deep;
  return { clock, store, confirmed, failures, begin: () => deep.begin() };
}
