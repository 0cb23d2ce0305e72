import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TimeSliceScheduler } from "../../../src/base/time-slices.ts";
import { PagedInitialState } from "../../../src/cacher/catch-up/initial-state.ts";
import { PendingSource } from "../../../src/cacher/catch-up/pending-source.ts";
import { SnapshotInitialState } from "../../../src/cacher/catch-up/snapshot-initial-state.ts";
import { StateSnapshot } from "../../../src/cacher/catch-up/state-snapshot.ts";
import type { WatchSource } from "../../../src/cacher/catch-up/watch-source.ts";
import { ListCache } from "../../../src/cacher/list/list-cache.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { markOf, RetainedSnapshots } from "../../../src/cacher/state/retained-snapshots.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { WatchBatch, type WatchEvent } from "../../../src/model/event.ts";
import { estimatedBytes, type StoredObject } from "../../../src/model/object.ts";
import type { Predicate } from "../../../src/model/predicate.ts";
import type { ListResult } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
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
  readonly scheduler = new TimeSliceScheduler(this.clock);
  readonly lists: ListCache;
  readonly filter: Filter;
  /** What streams have been told: undefined, that a piece is there. */
  readonly told: unknown[] = [];

  constructor(all: readonly StoredObject[], maxBytes: number, predicate?: Predicate) {
    this.cache.replace(all, Math.max(9, all.length));
    const bounds = { bytes: maxBytes, scanned: 50_000 };
    this.lists = new ListCache(this.cache, new ChunkCache(), bounds);
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
      reader: { fail: (error) => this.told.push(error) },
      scheduler: this.scheduler,
      owner: {},
      signal: new AbortController().signal,
      onReady: (failure) => this.told.push(failure),
      successor: new PendingSource(),
    });
  }
}

/** The next batch, after which the state is done if it closes it. */
function read(state: WatchSource): WatchBatch | undefined {
  const result = state.next();
  if (result !== undefined) expect(result.isDone).toBe(result.batch?.initialEventsEnd);
  return result?.batch;
}

/** The next piece, written short: `"a b …"` while more follows, `"c →9"` at the end. */
function piece(state: WatchSource): string | undefined {
  const batch = read(state);
  if (batch === undefined) return undefined;
  for (const event of batch.events) {
    expect(event).toMatchObject({ type: "ADDED", previous: undefined });
  }
  expect(batch.initialEventsEnd).toBe(batch.revision !== undefined);
  const keys = batch.events.map((event) => event.object.key);
  return [...keys, batch.revision === undefined ? "…" : `→${batch.revision}`].join(" ");
}

function pieces(state: WatchSource): string[] {
  const all: string[] = [];
  for (let next = piece(state); next !== undefined; next = piece(state)) all.push(next);
  return all;
}

const one = estimatedBytes(object("a", 1));

describe("A state from a snapshot", () => {
  it.each([
    ["nothing", [], one, ["→9"]],
    ["what fits into one piece", ["a", "b"], 3 * one, ["a b →9"]],
    ["what fills a piece just so", ["a", "b"], 2 * one, ["a b →9"]],
    ["more than a piece", ["a", "b", "c", "d", "e"], 2 * one, ["a b …", "c d …", "e →9"]],
    ["objects larger than a piece", ["a", "b"], 1, ["a …", "b →9"]],
  ])("hands out %s", (_what, keys, maxBytes, expected) => {
    const state = new World(objects(...keys), maxBytes).begin();
    expect(pieces(state)).toEqual(expected);
    expect(piece(state)).toBeUndefined();
  });

  it("holds just what the predicate picks", () => {
    const all = [object("a", 1, "yes"), object("b", 2, "no"), object("c", 3, "yes")];
    const saysYes = (each: StoredObject): boolean => text(each.value) === "yes";
    const state = new World(all, 1_000, saysYes).begin();
    expect(pieces(state)).toEqual(["a c →9"]);
  });

  it("is complete, and empty, where the predicate picks nothing", () => {
    const state = new World(objects("a", "b"), 1_000, () => false).begin();
    expect(pieces(state)).toEqual(["→9"]);
  });

  it("looks at no more objects than a piece needs, and the one that begins the next", () => {
    let looked = 0;
    const counting: Predicate = () => {
      looked++;
      return true;
    };
    const state = new World(objects("a", "b", "c", "d"), 2 * one, counting).begin();
    expect(looked).toBe(0);
    expect(piece(state)).toBe("a b …");
    expect(looked).toBe(3);
  });

  it("is put together once for all who take it at about the same time", () => {
    const world = new World(objects("a", "b", "c"), one);
    const shared = world.snapshot();
    const [first, second] = [world.begin(shared), world.begin(shared)];
    for (let next = read(first); next !== undefined; next = read(first)) {
      expect(read(second)).toBe(next);
    }
    expect(read(second)).toBeUndefined();
  });

  it("shares with a newer one all pieces in which nothing has changed", () => {
    const world = new World(objects("a", "b", "c", "d", "e", "f"), 2 * one);
    const older = world.begin();
    const before = [read(older), read(older)];
    world.cache.apply(new WatchBatch(10, [event("MODIFIED", "a", 10)]));
    const newer = world.begin();
    expect(read(newer)?.events.map(short)).toEqual(["ADDED a=@10", "ADDED b=@2"]);
    expect(read(newer)).toBe(before[1]);
    // Also where the newer one is the first to take it.
    const next = read(newer);
    expect(next?.events.map(short)).toEqual(["ADDED e=@5", "ADDED f=@6"]);
    const last = read(older);
    expect(last?.events).toEqual(next?.events);
    expect([last?.revision, next?.revision]).toEqual([9, 10]);
  });

  it("has a last piece that is large closed by another, which all share", () => {
    const large = "x".repeat(20_000);
    const world = new World([object("a", 1, large)], 100_000);
    const older = world.begin();
    const piece = read(older);
    expect([piece?.events.length, piece?.revision]).toEqual([1, undefined]);
    expect(read(older)).toMatchObject({ revision: 9, events: [], initialEventsEnd: true });
    expect(read(older)).toBeUndefined();
    world.cache.apply(new WatchBatch(10, []));
    const newer = world.begin();
    expect(read(newer)).toBe(piece);
    expect(read(newer)).toMatchObject({ revision: 10 });
  });

  it("that takes long to make gives the event loop back, and tells when a piece is there", () => {
    const keys = Array.from({ length: 3_000 }, (_, i) => `k${1_000 + i}`);
    const world = new World(objects(...keys), 1_000_000, () => true);
    const clock = new BusyClock();
    const scheduler = new TimeSliceScheduler(clock);
    const told: unknown[] = [];
    const begin = (owner: object, signal = new AbortController().signal) =>
      new SnapshotInitialState(world.snapshot(), {
        reader: { fail: (error) => told.push(error) },
        ...{ scheduler, owner, signal },
        onReady: (failure) => told.push(failure),
        successor: new PendingSource(),
      });
    const state = begin({});
    expect(read(state)).toBeUndefined();
    expect(read(state)).toBeUndefined();
    expect(told).toEqual([]);
    clock.runImmediates();
    expect(told).toEqual([undefined]);
    expect(pieces(state)).toHaveLength(2);
  });

  it("hands out no piece twice where another made it first", () => {
    const keys = Array.from({ length: 3_000 }, (_, i) => `k${1_000 + i}`);
    const world = new World(objects(...keys), 100_000, () => true);
    const clock = new BusyClock();
    const shared = world.snapshot();
    const state = new SnapshotInitialState(shared, {
      ...{ reader: { fail: () => {} }, owner: {}, signal: new AbortController().signal },
      ...{ scheduler: new TimeSliceScheduler(clock), onReady: () => {} },
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

  it("is put together anew for who comes to it when more has passed than is kept", () => {
    const large = "x".repeat(1024 * 1024);
    const keys = Array.from({ length: 40 }, (_, i) => `k${10 + i}`);
    const world = new World(
      keys.map((key, i) => object(key, i + 1, large)),
      1,
    );
    const shared = world.snapshot();
    const [quick, slow] = [world.begin(shared), world.begin(shared)];
    const first = read(quick);
    expect(pieces(quick)).toHaveLength(keys.length);
    expect(read(slow)).not.toBe(first);
    expect(pieces(slow)).toHaveLength(keys.length);
  });

  it("hands out every object once, in order, in pieces that end as soon as they are large enough", () => {
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
      { numRuns: 200 },
    );
  });
});

function page(next: string | undefined, ...keys: readonly string[]): ListResult {
  return { revision: 9, items: objects(...keys), next, remaining: undefined };
}

/** A state in pages, whose pages come when told to. */
function paged(first: ListResult) {
  const asked: string[] = [];
  const heard: unknown[] = [];
  let answer: PromiseWithResolvers<ListResult> = Promise.withResolvers();
  const state = new PagedInitialState(
    first,
    (startAfter) => {
      asked.push(startAfter);
      answer = Promise.withResolvers();
      return answer.promise;
    },
    (...failure) => heard.push(failure),
    new PendingSource(),
  );
  const heardOf = async (settle: () => void): Promise<void> => {
    settle();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return {
    state,
    asked,
    heard,
    arrive: (result: ListResult) => heardOf(() => answer.resolve(result)),
    fail: (error: Error) => heardOf(() => answer.reject(error)),
  };
}

describe("A state in pages from the storage", () => {
  it("is complete with a first page that is the last", () => {
    const { state, asked } = paged(page(undefined, "a", "b"));
    expect(pieces(state)).toEqual(["a b →9"]);
    expect(asked).toEqual([]);
  });

  it("asks for the next page when the one before is taken, and tells when it is there", async () => {
    const { state, asked, heard, arrive } = paged(page("b", "a", "b"));
    expect(asked).toEqual([]);
    expect(piece(state)).toBe("a b …");
    expect(asked).toEqual(["b"]);
    expect(piece(state)).toBeUndefined();
    expect(asked).toEqual(["b"]);
    await arrive(page("c", "c"));
    expect(heard).toEqual([[]]);
    expect(asked).toEqual(["b"]);
    expect(piece(state)).toBe("c …");
    expect(asked).toEqual(["b", "c"]);
    await arrive(page(undefined, "d"));
    expect(heard).toHaveLength(2);
    expect(pieces(state)).toEqual(["d →9"]);
    expect(asked).toHaveLength(2);
  });

  it("goes on over pages on which nothing was picked", async () => {
    const { state, arrive } = paged(page("m"));
    expect(piece(state)).toBe("…");
    await arrive(page(undefined));
    expect(pieces(state)).toEqual(["→9"]);
  });

  it("tells why a page won't come, and has no more", async () => {
    const { state, heard, fail } = paged(page("b", "a", "b"));
    piece(state);
    const failure = new Error("gone");
    await fail(failure);
    expect(heard).toEqual([[failure]]);
    expect(piece(state)).toBeUndefined();
  });
});
