import { describe, expect, it } from "vitest";
import { defaultEventWindowBounds } from "../../src/cacher/state/event-window.ts";
import { WatchCache } from "../../src/cacher/state/watch-cache.ts";
import type { WatchBatch, WatchEvent } from "../../src/model/event.ts";
import type { ListedState, ReflectorTarget, ReplaceCause } from "../../src/reflector/reflector.ts";
import { MemoryStorage } from "../../src/storage/memory/memory-storage.ts";
import type { Storage } from "../../src/storage/storage.ts";
import { FakeClock } from "../fake-clock.ts";
import fc from "../property.ts";
import { BreakingStorage } from "./breaking-storage.ts";
import { Reflected } from "./reflected.ts";

const value = Buffer.from("");

function open(options: { pageSize?: number } = {}) {
  const clock = new FakeClock();
  const store = new MemoryStorage({ clock });
  return { clock, store, reflected: new Reflected(store, { clock, ...options }) };
}

/** Writes `a` this often: the store's revision is then one more. */
async function write(store: MemoryStorage, times: number): Promise<void> {
  for (let i = 0; i < times; i++) await store.put({ key: "a", value });
}

describe("A Reflector over the embedded store", () => {
  it("delivers the state, then complete transactions", async () => {
    const { clock, store, reflected } = open();
    await write(store, 2);
    await reflected.begin();
    await store.txn([
      { type: "delete", key: "a" },
      { type: "put", key: "b", value },
    ]);
    await clock.settle();
    expect(reflected.heard).toEqual(["start: [a@3] →3 of 3", "DELETED a@4 ADDED b@4 →4"]);
  });

  it("delivers the state at one revision, whatever is written between its pages", async () => {
    const { clock, store, reflected } = open({ pageSize: 1 });
    for (const key of ["a", "b", "c"]) await store.put({ key, value });
    const { list } = store;
    store.list = async (request) => {
      const page = await list.call(store, request);
      if (request.startAfter === "a") await store.delete({ key: "c" });
      return page;
    };
    await reflected.begin();
    await clock.settle();
    expect(reflected.heard).toEqual(["start: [a@2 b@3 c@4] →4 of 4", "DELETED c@5 →5"]);
  });

  it("relists if events were compacted before it could read them", async () => {
    const { clock, store, reflected } = open();
    await write(store, 1);
    await reflected.begin();
    await write(store, 3);
    await store.compact(5);
    await clock.elapse(1_000);
    expect(reflected.heard).toEqual(["start: [a@2] →2 of 2", "history lost: [a@5] →5 of 5"]);
    await write(store, 1);
    await clock.settle();
    expect(reflected.heard.slice(2)).toEqual(["MODIFIED a@6 →6"]);
  });

  it("retries a closed storage until it is stopped", async () => {
    const { clock, store, reflected } = open();
    await reflected.begin();
    await store.close();
    await clock.elapse(60_000);
    expect(reflected.outcome).toBeUndefined();
    reflected.reflector.stop();
    await clock.settle();
    expect(reflected.outcome).toBe("stopped");
    expect(clock.pendingTimers).toBe(0);
  });
});

/** A target that checks deliveries as a cache does: it refuses repetitions and wrong order. */
class CheckedTarget implements ReflectorTarget {
  readonly cache: WatchCache;
  readonly causes: ReplaceCause[] = [];
  readonly batches: WatchBatch[] = [];

  constructor(clock: FakeClock) {
    this.cache = new WatchCache(defaultEventWindowBounds, clock);
  }

  replace({ objects, revision }: ListedState, cause: ReplaceCause): void {
    this.cache.replace(objects, revision);
    this.causes.push(cause);
    this.batches.length = 0;
  }

  apply(batch: WatchBatch): void {
    this.cache.apply(batch);
    this.batches.push(batch);
  }
}

function short({ type, object }: WatchEvent): string {
  return `${type} ${object.key}@${object.modRevision}`;
}

/** The whole history after `revision`, as the store itself delivers it. */
function history(store: Storage, revision: number): string[] {
  const stream = store.watch({
    scope: { prefix: "" },
    afterRevision: revision,
    withPrevious: false,
  });
  const all: string[] = [];
  for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
    all.push(...batch.events.map(short));
  }
  stream.close();
  return all;
}

describe("Whatever happens to the store and its streams", () => {
  const keys = fc.constantFrom("a", "b", "c", "d");
  const step = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        do: fc.constant("write" as const),
        put: fc.uniqueArray(keys, { maxLength: 3 }),
        remove: keys,
      }),
    },
    { weight: 3, arbitrary: fc.record({ do: fc.constant("settle" as const) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("break" as const) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant("compact" as const), back: fc.nat(4) }) },
    { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(400) }) },
  );

  type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

  /** Two stores with the same writes. The second one keeps its whole history and is never disturbed. */
  class Stores {
    readonly clock = new FakeClock();
    readonly store = new BreakingStorage({ clock: this.clock });
    readonly account = new MemoryStorage({ clock: this.clock });

    async take(action: Step): Promise<void> {
      const { clock, store, account } = this;
      if (action.do === "settle") await clock.settle();
      else if (action.do === "wait") await clock.elapse(action.ms);
      else if (action.do === "break") store.break();
      else if (action.do === "compact") {
        await store.compact(Math.max(1, (await store.currentRevision()) - action.back));
      } else {
        const puts = action.put.map((key) => ({ type: "put" as const, key, value }));
        const key = action.remove;
        const removals = action.put.includes(key) ? [] : [{ type: "delete" as const, key }];
        for (const each of [store, account]) await each.txn([...puts, ...removals]);
      }
    }
  }

  const scripts = fc.record({
    before: fc.array(step, { maxLength: 20, size: "max" }),
    during: fc.array(step, { maxLength: 100, size: "max" }),
  });

  it("the target ends equal to the store, with every event once, and no gap but a replacement", async () => {
    await fc.assert(
      fc.asyncProperty(scripts, async ({ before, during }) => {
        const stores = new Stores();
        const { clock, store, account } = stores;
        const target = new CheckedTarget(clock);
        const reflected = new Reflected(store, { clock, pageSize: 2, target });
        for (const action of before) await stores.take(action);
        void reflected.begin();
        for (const action of during) await stores.take(action);
        await clock.elapse(30_000);
        expect(reflected.outcome).toBeUndefined();

        const at = { match: "LINEARIZABLE" } as const;
        const { items, revision } = await store.list({ prefix: "", limit: 0, at });
        expect([...target.cache.state.range("")]).toEqual(items);
        expect(target.cache.revision).toBe(revision);
        const delivered = target.batches.flatMap(({ events }) => events.map(short));
        expect(delivered).toEqual(history(account, target.cache.eventWindow.floor.revision));
        const [first, ...others] = target.causes;
        expect(first).toBe("start");
        expect(others.filter((cause) => cause !== "history lost")).toEqual([]);

        reflected.reflector.stop();
        await clock.settle();
        expect(reflected.outcome).toBe("stopped");
        expect(clock.pendingTimers).toBe(0);
      }),
      { numRuns: 100 },
    );
  });
});
