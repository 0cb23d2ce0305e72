import { expect, test } from "vitest";
import type { CacheWatchRequest, Delivery, View } from "../../../src/cacher/request/request.ts";
import { Shard } from "../../../src/cacher/request/shard.ts";
import type { EventType, WatchEvent } from "../../../src/model/event.ts";
import { hashOf } from "../../../src/model/key-hash.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { framesOf } from "../../../src/wire/frames.ts";
import fc, { runs } from "../../property.ts";
import { CachedStore } from "../cached-store.ts";

const keys = Array.from({ length: 12 }, (_, i) => `k${i}`);
const half = 2n ** 63n;
const shards = {
  all: undefined,
  low: new Shard([{ first: 0n, last: half - 1n }]),
  high: new Shard([{ first: half, last: 2n * half - 1n }]),
} as const;

/** Some of what a watch of everything receives. */
interface Part {
  readonly shard: keyof typeof shards;
  readonly view: View;
  readonly types: readonly EventType[];
  readonly prefix: string;
}

const part: fc.Arbitrary<Part> = fc.record({
  shard: fc.constantFrom(...(["all", "low", "high"] as const)),
  view: fc.constantFrom<View[]>("FULL", "KEYS"),
  types: fc.subarray<EventType>(["ADDED", "MODIFIED", "DELETED"], { minLength: 1 }),
  prefix: fc.constantFrom("", "k1"),
});

type Step =
  | { readonly do: "write"; readonly key: string; readonly value: string | null }
  | { readonly do: "read" };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("write" as const),
      key: fc.constantFrom(...keys),
      value: fc.constantFrom("in", "out", "in", null),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ do: "read" as const }) },
);

/** The events that a stream has delivered, and its last resume point. */
class Seen {
  readonly events: WatchEvent[] = [];
  /** The objects that a client has which applies the events, by key: their revision and value. */
  readonly state = new Map<string, string>();
  revision = 0;
  readonly #stream: WatchStream;

  constructor(stream: WatchStream) {
    this.#stream = stream;
  }

  read(): void {
    for (let batch = this.#stream.read(); batch !== undefined; batch = this.#stream.read()) {
      this.events.push(...batch.events);
      this.revision = batch.revision ?? this.revision;
      for (const { type, object } of batch.events) {
        const content = `${object.modRevision}=${Buffer.from(object.value).toString()}`;
        if (type === "DELETED") this.state.delete(object.key);
        else this.state.set(object.key, content);
      }
    }
    expect(this.#stream.ended).toBeUndefined();
  }
}

function isIn({ prefix, shard }: Part, key: string): boolean {
  return key.startsWith(prefix) && (shards[shard]?.includes(hashOf(key)) ?? true);
}

/** The events of everything, as the part shows them. */
function shown(events: readonly WatchEvent[], asked: Part): string[] {
  const bare = asked.view === "KEYS";
  return events
    .filter(({ type, object }) => isIn(asked, object.key) && asked.types.includes(type))
    .map(({ type, object, previous }) => {
      const value = (of: typeof object | undefined) =>
        of && `${of.modRevision}:${of.createRevision}:${bare ? "" : Buffer.from(of.value)}`;
      return `${type} ${object.key} ${value(object)} ${value(previous)}`;
    });
}

async function follow(
  delivery: Delivery,
  asked: Part,
  steps: readonly Step[],
  options: { readonly withState: boolean; readonly isSelective: boolean },
): Promise<{ readonly all: Seen; readonly some: Seen }> {
  const bounds = { minBufferBatches: 2, maxBufferBatches: 2, stallTimeoutMs: 1e9 };
  const cached = await CachedStore.ready({ watchers: bounds });
  await cached.write(["k0", "in"], ["k1", "out"], ["k10", "in"]);
  const request: CacheWatchRequest = {
    ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: true, delivery },
    ...{ sendInitialEvents: options.withState, bookmarkIntervalMs: 1_000 },
    predicate: options.isSelective ? ({ value }) => value[0] === "i".charCodeAt(0) : undefined,
  };
  const { prefix, view, types: eventTypes, shard } = asked;
  const all = new Seen(cached.cacher.watch(request));
  const some = new Seen(
    cached.cacher.watch({
      ...{ ...request, scope: { prefix }, view, eventTypes, shard: shards[shard] },
    }),
  );
  await cached.clock.elapse(200);
  for (const each of steps) {
    if (each.do === "write") await cached.write([each.key, each.value]);
    else for (const seen of [all, some]) seen.read();
  }
  for (let i = 0; i < 4; i++) {
    await cached.clock.elapse(1_100);
    for (const seen of [all, some]) seen.read();
  }
  await cached.cacher.close();
  return { all, some };
}

const given = [
  part,
  fc.array(step, { maxLength: 40 }),
  fc.record({ withState: fc.boolean(), isSelective: fc.boolean() }),
] as const;

test("A watch of a part delivers what a watch of everything does, without the rest.", async () => {
  let delivered = 0;
  await fc.assert(
    fc.asyncProperty(...given, async (asked, steps, options) => {
      const withState = options.withState && asked.types.includes("ADDED");
      const { all, some } = await follow("EVERY_EVENT", asked, steps, { ...options, withState });
      expect(shown(some.events, { ...asked, view: "FULL" })).toEqual(shown(all.events, asked));
      delivered += some.events.length;
    }),
    { numRuns: runs(400) },
  );
  expect(delivered).toBeGreaterThan(100);
});

test("A slow watch of a part leads to the same state as one of everything.", async () => {
  await fc.assert(
    fc.asyncProperty(...given, async (asked, steps, options) => {
      const whole: Part = { ...asked, types: ["ADDED", "MODIFIED", "DELETED"] };
      const { all, some } = await follow("LATEST_STATE", whole, steps, options);
      const expected = [...all.state].filter(([key]) => isIn(whole, key));
      const bare = ([key, content]: readonly [string, string]) =>
        [key, whole.view === "KEYS" ? content.replace(/=.*/, "=") : content] as const;
      // Without a state, both know only what has changed since they began.
      expect(new Map(some.state)).toEqual(new Map(expected.map(bare)));
      expect(some.revision).toBe(all.revision);
    }),
    { numRuns: runs(400) },
  );
});

test("Shards with equal hashes are equal, however their ranges are written.", () => {
  const canonical = (...ranges: readonly (readonly [bigint, bigint])[]) =>
    new Shard(ranges.map(([first, last]) => ({ first, last }))).canonical;
  expect(canonical([6n, 9n], [0n, 5n])).toBe(canonical([0n, 9n]));
  expect(canonical([0n, 4n], [6n, 9n])).not.toBe(canonical([0n, 9n]));
  expect(canonical([9n, 2n * half - 1n])).not.toBe(canonical([9n, 2n * half - 2n]));
});

test("A shard has the hashes of its ranges, both ends included, and no others.", () => {
  const bound = fc.bigInt(0n, 40n);
  fc.assert(
    fc.property(fc.uniqueArray(bound, { minLength: 2 }), fc.boolean(), (bounds, isHigh) => {
      const at = (bound: bigint) => (isHigh ? 2n * half - 1n - 40n + bound : bound);
      const ranges = bounds
        .toSorted((a, b) => Number(a - b))
        .flatMap((first, i, all) => {
          const last = all[i + 1];
          return i % 2 === 1 || last === undefined ? [] : [{ first: at(first), last: at(last) }];
        });
      const shard = new Shard(ranges.toReversed());
      for (let hash = 0n; hash <= 40n; hash++) {
        const isIn = ranges.some(({ first, last }) => first <= at(hash) && at(hash) <= last);
        expect(shard.includes(at(hash).toString(16).padStart(16, "0"))).toBe(isIn);
      }
    }),
    { numRuns: runs(200) },
  );
});

test("A batch of keys is encoded once for all its watches.", async () => {
  const cached = await CachedStore.ready();
  const request: CacheWatchRequest = {
    ...{ scope: { prefix: "" }, afterRevision: undefined, withPrevious: false, view: "KEYS" },
  };
  const streams = [1, 2, 3].map(() => cached.cacher.watch(request));
  await cached.clock.elapse(200);
  for (const stream of streams) while (stream.read() !== undefined);
  await cached.write(["a", "value"]);
  const batches = streams.map((stream) => stream.read());
  expect(new Set(batches).size).toBe(1);
  expect(batches[0] && Buffer.concat(framesOf(batches[0])).includes("value")).toBe(false);
  expect(batches[0]?.events[0]?.object.key).toBe("a");
  await cached.cacher.close();
});
