import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { LatencySampler } from "../../../src/base/latency-sampler.ts";
import { Turns } from "../../../src/base/turns.ts";
import { CoalescedBacklogs } from "../../../src/cacher/catch-up/coalesced-backlogs.ts";
import { PendingSource } from "../../../src/cacher/catch-up/watch-source.ts";
import type { DispatchTarget } from "../../../src/cacher/dispatch/dispatch-target.ts";
import { Dispatcher } from "../../../src/cacher/dispatch/dispatcher.ts";
import { defaultWatcherBounds } from "../../../src/cacher/dispatch/watcher-bounds.ts";
import {
  type Groups,
  WatcherGroup,
  WatcherIndex,
} from "../../../src/cacher/dispatch/watcher-index.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { Shard } from "../../../src/cacher/request/shard.ts";
import { ChunkCache } from "../../../src/cacher/state/chunk-cache.ts";
import { EventNode } from "../../../src/cacher/state/event-node.ts";
import { defaultEventWindowBounds } from "../../../src/cacher/state/event-window.ts";
import { Filter } from "../../../src/cacher/state/filter.ts";
import { WatchCache } from "../../../src/cacher/state/watch-cache.ts";
import { CacheWatcher, type WatcherContext } from "../../../src/cacher/watch/cache-watcher.ts";
import { isRawKey } from "../../../src/model/key-bytes.ts";
import type { WatchScope } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc, { runs } from "../../property.ts";
import { event, object, short, text } from "../objects.ts";

/** A context for watchers that are never opened. */
function makeContext(): WatcherContext {
  const clock = new FakeClock();
  const cache = new WatchCache(defaultEventWindowBounds, clock);
  const dispatcher = new Dispatcher(cache, clock, defaultWatcherBounds);
  const turns = new Turns(clock);
  const chunkCache = new ChunkCache();
  return {
    bounds: defaultWatcherBounds,
    cache,
    dispatcher,
    coalescedBacklogs: new CoalescedBacklogs({
      clock,
      cache,
      dispatcher,
      chunkCache,
      turns,
      chunkBytes: 1,
      maxBytes: 1,
    }),
    turns,
    deliveryLatency: new LatencySampler(clock, () => {}),
    forget: () => {},
    toStreamError: () => new WatchFanoutError("INTERNAL", "A listener threw."),
  };
}

const context = makeContext();

function watcher(
  scope: WatchScope,
  options: {
    withPrevious?: boolean;
    rawKeys?: boolean;
    predicate?: Predicate | undefined;
    shard?: Shard | undefined;
  } = {},
): CacheWatcher {
  const { withPrevious = false, rawKeys, predicate, shard } = options;
  const watcherOptions = {
    delivery: "EVERY_EVENT" as const,
    bookmarkIntervalMs: 60_000,
    deadline: undefined,
    expiresAt: undefined,
    eagerBookmarks: false,
    owner: undefined,
  };
  return new CacheWatcher(
    new Filter({ scope, withPrevious, rawKeys, predicate, shard }),
    watcherOptions,
    context,
    new PendingSource(),
    0,
  );
}

/** An event node with a change of `key`, from `before` if that is given. */
function change(key: string, value = "", before?: string, revision = 9): EventNode {
  const type = before === undefined ? "ADDED" : "MODIFIED";
  const previous = before === undefined ? undefined : object(key, 5, before);
  return new EventNode(event(type, key, revision, value), previous, revision, 1, 0, 0);
}

function collect(index: WatcherIndex, ...nodes: readonly EventNode[]): WatcherGroup[] {
  const touched: WatcherGroup[] = [];
  for (const node of nodes) {
    const found: Groups[] = [];
    index.find(node, found);
    for (const groups of found) {
      for (const group of groups.values()) if (group.add(node)) touched.push(group);
    }
  }
  return touched;
}

/** All watchers of the groups. Fails if one is in two of them. */
function watchersOf(groups: readonly WatcherGroup[]): Set<DispatchTarget> {
  const all = groups.flatMap((group) => [...group.watchers]);
  const distinct = new Set(all);
  expect(distinct.size).toBe(all.length);
  return distinct;
}

/** A shard of so many ranges that together have every second part of the hashes. */
function stripes(count: number): Shard {
  const width = 2n ** 64n / BigInt(2 * count);
  return new Shard(
    Array.from({ length: count }, (_, i) => {
      const first = BigInt(2 * i) * width;
      return { first, last: first + width - 1n };
    }),
  );
}

const saysYes: Predicate = ({ value }) => text(value).includes("yes");
const saysNo: Predicate = ({ value }) => text(value).includes("no");

describe("The watcher index", () => {
  it("counts its watchers, each once", () => {
    const index = new WatcherIndex();
    const all = [watcher({ prefix: "" }), watcher({ prefix: "" }), watcher({ key: "a" })];
    for (const each of [...all, ...all]) index.add(each);
    expect(index.size).toBe(3);
    index.remove(watcher({ prefix: "" }));
    for (const each of all.slice(1)) index.remove(each);
    for (const each of all.slice(1)) index.remove(each);
    expect(index.size).toBe(1);
  });

  it("puts watchers with equal filters, and only those, into one group", () => {
    const index = new WatcherIndex();
    const scopes: WatchScope[] = [{ key: "a" }, { prefix: "a" }, { prefix: "" }];
    const kinds = [
      {},
      { withPrevious: true },
      { predicate: saysYes },
      { predicate: saysYes, withPrevious: true },
      { predicate: ({ value }: { value: Uint8Array }) => text(value).includes("yes") },
    ];
    const alike = scopes.flatMap((scope) =>
      kinds.map((kind) => [watcher(scope, kind), watcher(scope, kind)]),
    );
    for (const each of alike.flat()) index.add(each);
    const groups = collect(index, change("a", "yes"));
    expect(groups).toHaveLength(15);
    expect(new Set(groups.map((group) => new Set(group.watchers)))).toEqual(
      new Set(alike.map((pair) => new Set(pair))),
    );
  });

  it("distinguishes a key from an equal prefix", () => {
    const index = new WatcherIndex();
    const [exact, below] = [watcher({ key: "a" }), watcher({ prefix: "a" })];
    index.add(exact);
    index.add(below);
    expect(watchersOf(collect(index, change("a")))).toEqual(new Set([exact, below]));
    index.remove(exact);
    expect(watchersOf(collect(index, change("a"), change("ab")))).toEqual(new Set());
    index.remove(below);
    index.add(exact);
    expect(watchersOf(collect(index, change("a")))).toEqual(new Set([exact]));
  });

  it("returns a group once, with all its events in order, until its batches are taken", () => {
    const index = new WatcherIndex();
    index.add(watcher({ prefix: "a" }));
    const touched = collect(index, change("a", "1"), change("b", "2"), change("ab", "3"));
    expect(touched).toHaveLength(1);
    expect(collect(index, change("a", "4"))).toEqual([]);
    const [group] = touched;
    const taken = group?.takeBatches(9, 1_000_000).flatMap(({ events }) => events.map(short));
    expect(taken).toEqual(["ADDED a=1@9", "ADDED ab=3@9", "ADDED a=4@9"]);
    expect(collect(index, change("a", "5"))).toEqual([group]);
  });

  it("does not return a group whose predicate matches neither before nor after the event", () => {
    const index = new WatcherIndex();
    const [yes, no] = [saysYes, saysNo].map((predicate) => watcher({ key: "a" }, { predicate }));
    if (yes === undefined || no === undefined) throw new Error("two watchers");
    index.add(yes);
    index.add(no);
    expect(watchersOf(collect(index, change("a", "maybe")))).toEqual(new Set());
    expect(watchersOf(collect(index, change("a", "maybe", "no")))).toEqual(new Set([no]));
    expect(watchersOf(collect(index, change("a", "yes")))).toEqual(new Set([yes]));
  });

  it("finds no group for the first node of an event window", () => {
    const index = new WatcherIndex();
    index.add(watcher({ prefix: "" }));
    expect(collect(index, new EventNode(undefined, undefined, 1, 0, 0, 0))).toEqual([]);
  });

  it("removes a group with its last watcher, and creates another for the next", () => {
    const index = new WatcherIndex();
    const [one, two] = [watcher({ prefix: "a" }), watcher({ prefix: "a" })];
    index.add(one);
    index.add(two);
    const [group] = collect(index, change("a"));
    index.remove(one);
    index.remove(two);
    index.add(one);
    const [another] = collect(index, change("a", "again"));
    expect(another).not.toBe(group);
    expect(another?.takeBatches(9, 1_000)[0]?.events.map(short)).toEqual(["ADDED a=again@9"]);
  });

  it("ignores the removal of a watcher that it does not hold", () => {
    const index = new WatcherIndex();
    const stays = watcher({ prefix: "a" });
    index.add(stays);
    const leaves = watcher({ prefix: "a" });
    index.add(leaves);
    index.remove(leaves);
    index.remove(leaves);
    index.remove(watcher({ prefix: "a" }));
    index.remove(watcher({ prefix: "b" }));
    index.remove(watcher({ key: "a" }));
    index.remove(watcher({ prefix: "a" }, { predicate: saysYes }));
    expect(watchersOf(collect(index, change("a")))).toEqual(new Set([stays]));
  });

  it("adds a watcher once", () => {
    const index = new WatcherIndex();
    const twice = watcher({ prefix: "a" });
    index.add(twice);
    index.add(twice);
    index.remove(twice);
    expect(collect(index, change("a"))).toEqual([]);
  });

  it("finds prefixes of a length until the last of them is removed", () => {
    const index = new WatcherIndex();
    const [a, b, longer] = ["a", "b", "aa"].map((prefix) => watcher({ prefix }));
    if (a === undefined || b === undefined || longer === undefined) throw new Error("three");
    for (const each of [a, b, longer]) index.add(each);
    const found = (): Set<DispatchTarget> =>
      watchersOf(collect(index, change("a"), change("bb"), change("aab")));
    expect(found()).toEqual(new Set([a, b, longer]));
    for (const each of [a, b, longer]) index.remove(each);
    for (const each of [longer, b]) index.add(each);
    expect(found()).toEqual(new Set([longer, b]));
    index.remove(longer);
    index.remove(b);
    index.add(b);
    expect(found()).toEqual(new Set([b]));
  });

  it("finds the other groups of a scope when one is removed", () => {
    const kinds = [{}, { withPrevious: true }, { predicate: saysYes }];
    for (const scope of [{ key: "a" }, { prefix: "a" }]) {
      for (const [gone] of kinds.entries()) {
        const index = new WatcherIndex();
        const watchers = kinds.map((kind) => watcher(scope, kind));
        for (const each of watchers) index.add(each);
        const [removed] = watchers.splice(gone, 1);
        if (removed !== undefined) index.remove(removed);
        expect(watchersOf(collect(index, change("a", "yes")))).toEqual(new Set(watchers));
      }
    }
  });

  it("finds a prefix that equals the key once, beside longer prefixes", () => {
    const index = new WatcherIndex();
    for (const prefix of ["a", "a/long", "another"]) index.add(watcher({ prefix }));
    const batches = collect(index, change("a")).flatMap((group) => group.takeBatches(9, 1_000));
    expect(batches.map(({ events }) => events.map(short))).toEqual([["ADDED a=@9"]]);
  });

  it("holds nothing of a shard whose watchers never joined, or have left", () => {
    const index = new WatcherIndex();
    const [stays, left] = [
      watcher({ prefix: "a" }),
      watcher({ prefix: "a" }, { shard: stripes(1) }),
    ];
    index.add(stays);
    index.add(left);
    for (let i = 0; i < 3; i++) index.remove(left);
    index.remove(watcher({ prefix: "a" }, { shard: stripes(2) }));
    const node = change("ab");
    Object.defineProperty(node, "keyHash", {
      get: () => {
        throw new Error("The key was hashed, which only shards need.");
      },
    });
    expect(watchersOf(collect(index, node))).toEqual(new Set([stays]));
  });

  it("finds watchers of shards with many ranges in few comparisons", () => {
    const index = new WatcherIndex();
    const [first, second] = [stripes(1_000), stripes(1_024)];
    for (const shard of [first, second]) index.add(watcher({ prefix: "" }, { shard }));
    const nodes = Array.from({ length: 50 }, (_, i) => change(`k${i}`));
    for (const node of nodes) {
      expect(index.find(node, [])).toBeLessThan(10);
      const included = [first, second].filter((shard) => shard.includes(node.keyHash));
      const groups = collect(index, node);
      expect(groups).toHaveLength(included.length);
      for (const group of groups) group.takeBatches(9, 1_000);
    }
  });

  it("finds for any change exactly the watchers whose filter matches it", () => {
    const few = (minLength: number): fc.Arbitrary<string> =>
      fc.string({ unit: fc.constantFrom("a", "\u{1f600}"), minLength, maxLength: 3 });
    const scope: fc.Arbitrary<WatchScope> = fc.oneof(
      few(0).map((key) => ({ key })),
      few(0).map((prefix) => ({ prefix })),
      fc.record({ from: few(0), to: fc.option(few(0), { nil: undefined }) }),
    );
    const spec = fc.record({
      scope,
      rawKeys: fc.boolean(),
      withPrevious: fc.boolean(),
      predicate: fc.constantFrom(undefined, saysYes, saysNo),
      shard: fc.constantFrom(undefined, stripes(1), stripes(2), stripes(20)),
    });
    const values = fc.constantFrom("yes", "no", "maybe");
    const step = fc.oneof(
      fc.record({ do: fc.constant("add" as const), spec }),
      fc.record({ do: fc.constant("remove" as const), which: fc.nat(20) }),
      fc.record({
        do: fc.constant("change" as const),
        key: fc.oneof(
          few(0),
          few(0).map((text) => `${text}\udcff`),
        ),
        value: values,
        before: fc.option(values, { nil: undefined }),
      }),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80, size: "max" }), (steps) => {
        const index = new WatcherIndex();
        const present = new Set<DispatchTarget>();
        for (const action of steps) {
          if (action.do === "add") {
            const { scope, ...kind } = action.spec;
            const added = watcher(scope, kind);
            index.add(added);
            present.add(added);
          } else if (action.do === "remove") {
            const removed = [...present][action.which];
            if (removed === undefined) continue;
            index.remove(removed);
            present.delete(removed);
          } else {
            const node = change(action.key, action.value, action.before);
            const concerned = [...present].filter(
              ({ filter }) => filter.includes(action.key) && filter.select(node) !== undefined,
            );
            const touched = collect(index, node);
            expect(watchersOf(touched)).toEqual(new Set(concerned));
            if (isRawKey(action.key)) {
              expect(concerned.every(({ filter }) => filter.rawKeys)).toBe(true);
            }
            for (const group of touched) {
              const [batch] = group.takeBatches(9, 1_000_000);
              expect(batch?.events).toEqual([group.filter.select(node)]);
            }
          }
        }
      }),
      { numRuns: runs(300) },
    );
  });
});

describe("The batches of a group", () => {
  function batchesOf(revisions: readonly number[], closing: number, maxBytes: number): string[] {
    const group = new WatcherGroup(new Filter({ scope: { prefix: "" }, withPrevious: false }));
    for (const [i, revision] of revisions.entries()) {
      expect(group.add(change("k", "", undefined, revision))).toBe(i === 0);
    }
    return group
      .takeBatches(closing, maxBytes)
      .map(({ revision, events }) => `${events.map((each) => each.revision)} →${revision}`);
  }

  const weight = event("ADDED", "k", 1).estimatedBytes;

  it.each([
    ["one if all events fit", [2, 3, 4], 9, 10, ["2,3,4 →9"]],
    [
      "split where the bytes are reached, each with its own revision",
      [2, 3, 4],
      9,
      2,
      ["2,3 →3", "4 →9"],
    ],
    ["one per revision if none fits", [2, 3, 4], 4, 0, ["2 →2", "3 →3", "4 →4"]],
    ["never split within a revision", [2, 2, 2, 3, 3], 3, 1, ["2,2,2 →2", "3,3 →3"]],
    ["one if there is one revision", [2, 2, 2], 2, 1, ["2,2,2 →2"]],
  ])("are %s", (_what, revisions, closing, events, expected) => {
    expect(batchesOf(revisions, closing, events * weight)).toEqual(expected);
  });

  it("are returned once", () => {
    const group = new WatcherGroup(new Filter({ scope: { prefix: "" }, withPrevious: false }));
    group.add(change("k"));
    const [first] = group.takeBatches(9, 1_000);
    expect(group.add(change("l"))).toBe(true);
    const [second] = group.takeBatches(9, 1_000);
    expect([first, second].map((batch) => batch?.events.map(short))).toEqual([
      ["ADDED k=@9"],
      ["ADDED l=@9"],
    ]);
  });
});
