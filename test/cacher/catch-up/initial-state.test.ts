import { describe, expect, it } from "vitest";
import { Turns } from "../../../src/base/turns.ts";
import {
  PagedInitialState,
  SnapshotInitialState,
} from "../../../src/cacher/catch-up/initial-state.ts";
import { StateSnapshot } from "../../../src/cacher/catch-up/state-snapshot.ts";
import { PendingSource, type WatchSource } from "../../../src/cacher/catch-up/watch-source.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { markOf, RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch, type WatchEvent } from "../../../src/model/event.ts";
import { estimatedBytes, type StoredObject } from "../../../src/model/object.ts";
import type { ListResult } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { BusyClock } from "../busy-clock.ts";
import { finish } from "../finish.ts";
import { event, object, short, text } from "../objects.ts";

function objects(...keys: readonly string[]): StoredObject[] {
  return keys.map((key, i) => object(key, i + 1));
}

/** A cache that holds `all`, whose revisions are below 9, at revision 9. */
class World {
  readonly clock = new FakeClock();
  readonly cache = new WatchCache(defaultEventWindowBounds, this.clock);
  readonly retained = new RetainedSnapshots(this.cache, { idleBytes: 0, bytes: 1_000_000 });
  readonly scheduler = new Turns(this.clock);
  readonly chunkCache = new ChunkCache();
  readonly lists: ListCache;
  readonly filter: Filter;
  /** What readers were notified of: an error, or undefined for an available chunk. */
  readonly notified: unknown[] = [];

  constructor(all: readonly StoredObject[], maxBytes: number, predicate?: Predicate) {
    this.cache.replace(all, Math.max(9, all.length));
    const bounds = { bytes: maxBytes, scanned: 50_000 };
    this.lists = new ListCache(this.cache, this.chunkCache, bounds);
    this.filter = new Filter({ scope: { prefix: "" }, withPrevious: true, predicate });
  }

  snapshot(): StateSnapshot {
    const { cache } = this;
    const content = {
      revision: cache.revision,
      objects: cache.state.snapshot(),
      mark: markOf(cache),
    };
    return new StateSnapshot(content, this.filter, this.lists, this.retained);
  }

  begin(snapshot: StateSnapshot = this.snapshot()): SnapshotInitialState {
    return new SnapshotInitialState(snapshot, {
      reader: { fail: (error) => this.notified.push(error) },
      scheduler: this.scheduler,
      owner: {},
      signal: new AbortController().signal,
      onReady: (failure) => this.notified.push(failure),
      successor: new PendingSource(),
    });
  }
}

/** The next batch. Fails unless the source is done exactly after the closing one. */
function read(state: WatchSource): WatchBatch | undefined {
  const result = state.next();
  if (result !== undefined) expect(result.isDone).toBe(result.batch?.initialEventsEnd);
  return result?.batch;
}

/** The next chunk in short form: `"a b …"` before the last, `"c →9"` as the last. */
function chunk(state: WatchSource): string | undefined {
  const batch = read(state);
  if (batch === undefined) return undefined;
  for (const event of batch.events) {
    expect(event).toMatchObject({ type: "ADDED", previous: undefined });
  }
  expect(batch.initialEventsEnd).toBe(batch.revision !== undefined);
  const keys = batch.events.map((event) => event.object.key);
  return [...keys, batch.revision === undefined ? "…" : `→${batch.revision}`].join(" ");
}

function chunks(state: WatchSource): string[] {
  const all: string[] = [];
  for (let next = chunk(state); next !== undefined; next = chunk(state)) all.push(next);
  return all;
}

const one = estimatedBytes(object("a", 1));

describe("An initial state from a snapshot", () => {
  it.each([
    ["nothing", [], one, ["→9"]],
    ["objects that fit into one chunk", ["a", "b"], 3 * one, ["a b →9"]],
    ["objects that fill a chunk exactly", ["a", "b"], 2 * one, ["a b →9"]],
    ["several chunks", ["a", "b", "c", "d", "e"], 2 * one, ["a b …", "c d …", "e →9"]],
    ["objects larger than a chunk", ["a", "b"], 1, ["a …", "b →9"]],
  ])("delivers %s", (_what, keys, maxBytes, expected) => {
    const state = new World(objects(...keys), maxBytes).begin();
    expect(chunks(state)).toEqual(expected);
    expect(chunk(state)).toBeUndefined();
  });

  it("has only objects that match the predicate", () => {
    const all = [object("a", 1, "yes"), object("b", 2, "no"), object("c", 3, "yes")];
    const saysYes = (each: StoredObject): boolean => text(each.value) === "yes";
    const state = new World(all, 1_000, saysYes).begin();
    expect(chunks(state)).toEqual(["a c →9"]);
  });

  it("is complete, and empty, if no object matches", () => {
    const state = new World(objects("a", "b"), 1_000, () => false).begin();
    expect(chunks(state)).toEqual(["→9"]);
  });

  it("evaluates the objects of one chunk and the first of the next", () => {
    let evaluated = 0;
    const counting: Predicate = () => {
      evaluated++;
      return true;
    };
    const state = new World(objects("a", "b", "c", "d"), 2 * one, counting).begin();
    expect(evaluated).toBe(0);
    expect(chunk(state)).toBe("a b …");
    expect(evaluated).toBe(3);
  });

  it("does not notify its reader of a chunk that it has at once", () => {
    const world = new World(objects("a", "b", "c"), one);
    expect(chunks(world.begin())).toEqual(["a …", "b …", "c →9"]);
    expect(world.notified).toEqual([]);
  });

  it.each([
    ["taken", (state: WatchSource) => chunks(state)],
    ["dropped", (state: WatchSource) => state.drop()],
  ])("counts among the retained snapshots until it is %s", (_, end) => {
    const world = new World(objects("a", "b"), one);
    const state = world.begin();
    chunk(state);
    expect(world.retained.stats().snapshots).toBe(1);
    end(state);
    expect(world.retained.stats().snapshots).toBe(0);
  });

  it("reports why a chunk can't be built", async () => {
    const failure = new Error("no predicate");
    const world = new World(objects("a"), one, () => {
      throw failure;
    });
    expect(chunk(world.begin())).toBeUndefined();
    await world.clock.settle();
    expect(world.notified).toEqual([failure]);
  });

  it("is built once for all watchers that take it at about the same time", () => {
    const world = new World(objects("a", "b", "c"), one);
    const shared = world.snapshot();
    const [first, second] = [world.begin(shared), world.begin(shared)];
    for (let next = read(first); next !== undefined; next = read(first)) {
      expect(read(second)).toBe(next);
    }
    expect(read(second)).toBeUndefined();
  });

  it("shares all unchanged chunks with a newer one", () => {
    const world = new World(objects("a", "b", "c", "d", "e", "f"), 2 * one);
    const older = world.begin();
    const before = [read(older), read(older)];
    world.cache.apply(new WatchBatch(10, [event("MODIFIED", "a", 10)]));
    const newer = world.begin();
    expect(read(newer)?.events.map(short)).toEqual(["ADDED a=@10", "ADDED b=@2"]);
    expect(read(newer)).toBe(before[1]);
    // Also if the newer one takes it first.
    const next = read(newer);
    expect(next?.events.map(short)).toEqual(["ADDED e=@5", "ADDED f=@6"]);
    const last = read(older);
    expect(last?.events).toEqual(next?.events);
    expect([last?.revision, next?.revision]).toEqual([9, 10]);
  });

  it("has a large last chunk, which all share, closed by another batch", () => {
    const large = "x".repeat(20_000);
    const world = new World([object("a", 1, large)], 100_000);
    const older = world.begin();
    const last = read(older);
    expect([last?.events.length, last?.revision]).toEqual([1, undefined]);
    expect(read(older)).toMatchObject({ revision: 9, events: [], initialEventsEnd: true });
    expect(read(older)).toBeUndefined();
    world.cache.apply(new WatchBatch(10, []));
    const newer = world.begin();
    expect(read(newer)).toBe(last);
    expect(read(newer)).toMatchObject({ revision: 10 });
  });

  it("is built in time slices, and its reader is notified when a chunk is available", () => {
    const keys = Array.from({ length: 3_000 }, (_, i) => `k${1_000 + i}`);
    const world = new World(objects(...keys), 1_000_000, () => true);
    const clock = new BusyClock();
    const scheduler = new Turns(clock);
    const notified: unknown[] = [];
    const begin = (owner: object, signal = new AbortController().signal) =>
      new SnapshotInitialState(world.snapshot(), {
        reader: { fail: (error) => notified.push(error) },
        ...{ scheduler, owner, signal },
        onReady: (failure) => notified.push(failure),
        successor: new PendingSource(),
      });
    const state = begin({});
    expect(read(state)).toBeUndefined();
    expect(read(state)).toBeUndefined();
    expect(notified).toEqual([]);
    clock.runImmediates();
    expect(notified).toEqual([undefined]);
    // It has the chunk even if it is no longer shared.
    for (let i = 0; i < 2; i++) world.chunkCache.expire();
    expect(chunks(state)).toHaveLength(2);
    clock.runImmediates();
    expect(notified).toEqual([undefined]);
  });

  it("delivers no chunk twice if another watcher built it first", () => {
    const keys = Array.from({ length: 3_000 }, (_, i) => `k${1_000 + i}`);
    const world = new World(objects(...keys), 100_000, () => true);
    const clock = new BusyClock();
    const shared = world.snapshot();
    const state = new SnapshotInitialState(shared, {
      ...{ reader: { fail: () => {} }, owner: {}, signal: new AbortController().signal },
      ...{ scheduler: new Turns(clock), onReady: () => {} },
      successor: new PendingSource(),
    });
    expect(read(state)).toBeUndefined();
    finish(shared.chunk(undefined));
    const seen: WatchEvent[] = [];
    const take = (): void => {
      for (let batch = read(state); batch !== undefined; batch = read(state)) {
        seen.push(...batch.events);
      }
    };
    take();
    while (clock.pendingImmediates > 0) {
      clock.runTurn();
      take();
    }
    expect(seen.map((event) => event.object.key)).toEqual(keys);
  });

  it("is kept for its reader although none is kept for later ones", () => {
    const world = new World(objects("a", "b"), one);
    const state = world.begin();
    world.cache.apply(new WatchBatch(10, [event("MODIFIED", "b", 10)]));
    expect(world.retained.stats().bytes).toBeGreaterThan(0);
    world.retained.enforceLimits();
    expect([...world.notified, ...chunks(state)]).toEqual(["a …", "b →9"]);
  });

  it("is that of its own history after a relist at the same revision", () => {
    const world = new World(objects("a", "b"), 1_000);
    const older = world.begin();
    world.cache.replace(objects("c"), 9);
    expect(chunks(world.begin())).toEqual(["c →9"]);
    expect(chunks(older)).toEqual(["a b →9"]);
  });

  it("shares the chunks that a newer one has built since those of its list were evicted", () => {
    const world = new World(objects("a", "b", "c"), one);
    const older = world.begin();
    chunk(older);
    for (let i = 0; i < 2; i++) world.chunkCache.expire();
    const newer = world.begin();
    read(newer);
    expect(read(older)).toBe(read(newer));
  });

  it("is large if it has several chunks, also after the last one is taken", () => {
    const world = new World(objects("a", "b"), one);
    const snapshot = world.snapshot();
    expect(chunks(world.begin(snapshot))).toEqual(["a …", "b →9"]);
    chunks(world.begin(snapshot));
    expect(snapshot.isLarge).toBe(true);
  });

  it("is built again for a reader that comes after its chunks were evicted", () => {
    const large = "x".repeat(1024 * 1024);
    const keys = Array.from({ length: 40 }, (_, i) => `k${10 + i}`);
    const world = new World(
      keys.map((key, i) => object(key, i + 1, large)),
      1,
    );
    const shared = world.snapshot();
    const [quick, slow] = [world.begin(shared), world.begin(shared)];
    const first = read(quick);
    expect(chunks(quick)).toHaveLength(keys.length);
    expect(read(slow)).not.toBe(first);
    expect(chunks(slow)).toHaveLength(keys.length);
  });

  it("delivers every object once, in order, in chunks that end when they are large enough", () => {
    const contents = fc.array(fc.string({ maxLength: 200 }), { maxLength: 50 });
    fc.assert(
      fc.property(contents, fc.integer({ min: 1, max: 1_000 }), (values, maxBytes) => {
        const all = values.map((value, i) => object(`k${i}`, i + 1, value));
        const state = new World(all, maxBytes).begin();
        const seen: string[] = [];
        for (let batch = read(state); batch !== undefined; batch = read(state)) {
          seen.push(...batch.events.map(short));
          const last = batch.events.at(-1);
          const withoutLast = batch.estimatedBytes - (last?.estimatedBytes ?? 0);
          expect(withoutLast).toBeLessThan(maxBytes);
          if (!batch.initialEventsEnd)
            expect(batch.estimatedBytes).toBeGreaterThanOrEqual(maxBytes);
        }
        expect(seen).toEqual(values.map((value, i) => `ADDED k${i}=${value}@${i + 1}`));
      }),
      { numRuns: runs(200) },
    );
  });
});

function page(next: string | undefined, ...keys: readonly string[]): ListResult {
  return { revision: 9, items: objects(...keys), next, remaining: undefined };
}

/** A state in pages that the test delivers. */
function paged(first: ListResult) {
  const requested: string[] = [];
  const reported: unknown[] = [];
  let response: PromiseWithResolvers<ListResult> = Promise.withResolvers();
  const state = new PagedInitialState(
    first,
    (startAfter) => {
      requested.push(startAfter);
      response = Promise.withResolvers();
      return response.promise;
    },
    (...failure) => reported.push(failure),
    new PendingSource(),
  );
  const afterwards = async (settle: () => void): Promise<void> => {
    settle();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    state,
    requested,
    reported,
    arrive: (result: ListResult) => afterwards(() => response.resolve(result)),
    fail: (error: Error) => afterwards(() => response.reject(error)),
  };
}

describe("An initial state in pages from the storage", () => {
  it("is complete with a single page", () => {
    const { state, requested } = paged(page(undefined, "a", "b"));
    expect(chunks(state)).toEqual(["a b →9"]);
    expect(requested).toEqual([]);
  });

  it("requests the next page when the one before is taken, and notifies when it has arrived", async () => {
    const { state, requested, reported, arrive } = paged(page("b", "a", "b"));
    expect(requested).toEqual([]);
    expect(chunk(state)).toBe("a b …");
    expect(requested).toEqual(["b"]);
    expect(chunk(state)).toBeUndefined();
    expect(requested).toEqual(["b"]);
    await arrive(page("c", "c"));
    expect(reported).toEqual([[]]);
    expect(requested).toEqual(["b"]);
    expect(chunk(state)).toBe("c …");
    expect(requested).toEqual(["b", "c"]);
    await arrive(page(undefined, "d"));
    expect(reported).toHaveLength(2);
    expect(chunks(state)).toEqual(["d →9"]);
    expect(requested).toHaveLength(2);
  });

  it("continues over pages without a match", async () => {
    const { state, arrive } = paged(page("m"));
    expect(chunk(state)).toBe("…");
    await arrive(page(undefined));
    expect(chunks(state)).toEqual(["→9"]);
  });

  it("reports why a page is missing, and has no more", async () => {
    const { state, reported, fail } = paged(page("b", "a", "b"));
    chunk(state);
    const failure = new Error("gone");
    await fail(failure);
    expect(reported).toEqual([[failure]]);
    expect(chunk(state)).toBeUndefined();
  });
});
