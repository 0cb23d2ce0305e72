import { describe, expect, it } from "vitest";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { Storage } from "../../../src/storage/storage.ts";
import fc, { runs } from "../../property.ts";
import { CheckedHandler, type Manner } from "./handlers/checked-handler.ts";
import { Informed, stateOf } from "./informed.ts";

type Step =
  | {
      readonly do: "write";
      readonly put: Readonly<Record<string, string>>;
      readonly remove: string;
    }
  | { readonly do: "settle" | "break" | "renew" }
  | { readonly do: "compact"; readonly back: number }
  | { readonly do: "wait"; readonly ms: number }
  | { readonly do: "add"; readonly manner: Manner; readonly queueSize: number }
  | { readonly do: "remove" | "release"; readonly which: number };

const key = fc.constantFrom("a", "b", "c", "d");
const write = fc.record({
  do: fc.constant("write" as const),
  // Includes a value that can't be decoded.
  put: fc.dictionary(key, fc.constantFrom("x", "y", "z", "?"), { maxKeys: 3 }),
  remove: key,
});
const add = fc.record({
  do: fc.constant("add" as const),
  manner: fc.constantFrom<Manner>("quick", "slow", "failing"),
  queueSize: fc.integer({ min: 0, max: 3 }),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 8, arbitrary: write },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("settle" as const) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("break" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("compact" as const), back: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.nat(400) }) },
  { weight: 3, arbitrary: add },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constantFrom("release", "remove"), which: fc.nat(9) }),
  },
);
const anyStep = fc.oneof(
  { weight: 40, arbitrary: step },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("renew" as const) }) },
);
/** Without steps that lose events, and without values that can't be decoded. */
const gentleStep: fc.Arbitrary<Step> = step.filter(
  (one) => one.do !== "compact" && (one.do !== "write" || !Object.values(one.put).includes("?")),
);

/** An informer over a store, its handlers, and the same store without faults. */
class World {
  readonly informed: Informed;
  readonly account: MemoryStorage;
  readonly handlers: CheckedHandler[] = [];
  readonly removed: CheckedHandler[] = [];

  constructor(queueSize: number) {
    this.informed = new Informed({ resyncMs: 300, queueSize });
    this.account = new MemoryStorage({ clock: this.informed.clock });
  }

  add(manner: Manner, queueSize: number): CheckedHandler {
    const handler = new CheckedHandler(manner);
    handler.registration = this.informed.informer.addEventHandler(handler, { queueSize });
    this.handlers.push(handler);
    return handler;
  }

  async take(step: Step): Promise<void> {
    const { clock, store } = this.informed;
    switch (step.do) {
      case "write": {
        const puts = Object.entries(step.put).map(([key, text]) => ({
          type: "put" as const,
          key,
          value: Buffer.from(text),
        }));
        const isPut = Object.hasOwn(step.put, step.remove);
        const removals = isPut ? [] : [{ type: "delete" as const, key: step.remove }];
        for (const each of [store, this.account]) await each.txn([...puts, ...removals]);
        return;
      }
      case "settle":
        return clock.settle();
      case "break":
        return store.break();
      case "renew":
        await store.renewHistory(await store.historyId());
        return store.break();
      case "compact":
        return store.compact(Math.max(1, (await store.currentRevision()) - step.back));
      case "wait":
        return clock.elapse(step.ms);
      case "add":
        this.add(step.manner, step.queueSize);
        return;
      case "release":
        return this.#pick(step.which)?.release();
      default: {
        const handler = this.#pick(step.do === "remove" ? step.which : 0);
        if (handler === undefined) return;
        handler.remove();
        this.handlers.splice(this.handlers.indexOf(handler), 1);
        this.removed.push(handler);
      }
    }
  }

  /** Every notification was delivered, and every call has ended. */
  async end(): Promise<void> {
    const { clock } = this.informed;
    await clock.elapse(10_000);
    while ([...this.handlers, ...this.removed].some(({ isBusy }) => isBusy)) {
      for (const handler of [...this.handlers, ...this.removed]) handler.release();
      await clock.settle();
    }
  }

  #pick(which: number): CheckedHandler | undefined {
    return this.handlers[which % Math.max(1, this.handlers.length)];
  }
}

/** The decodable objects of a store, and the keys of the others. */
async function decodable(store: Storage) {
  const entries = Object.entries(await stateOf(store));
  return {
    good: Object.fromEntries(entries.filter(([, text]) => text !== "?")),
    bad: entries.filter(([, text]) => text === "?").map(([key]) => key),
  };
}

describe("For any writes, faults and gaps, and handlers of any pace", () => {
  it("the Indexer and every handler end with the current state, and all calls are in order", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyStep, { maxLength: 15 }),
        fc.array(anyStep, { maxLength: 80, size: "max" }),
        fc.integer({ min: 0, max: 5 }),
        async (before, during, queueSize) => {
          const world = new World(queueSize);
          const { informed, handlers, removed } = world;
          for (const one of before) await world.take(one);
          informed.informer.start();
          for (const one of during) await world.take(one);
          await world.end();

          const { good, bad } = await decodable(informed.store);
          const { informer, state } = informed;
          // Objects that can't be decoded have an older state, or none.
          for (const key of bad) delete state[key];
          expect(state).toEqual(good);
          for (const handler of handlers) {
            expect(handler.differences(informer.indexer)).toEqual([]);
            expect(handler.registration?.hasSynced).toBe(true);
            expect(handler.registration?.pending).toBe(0);
          }
          for (const handler of [...handlers, ...removed]) expect(handler.faults).toEqual([]);
          expect(informer.stats()).toMatchObject({ pendingKeys: 0 });
          expect(informer.revision).toBe(await informed.store.currentRevision());

          await informer.stop();
          await informed.clock.settle();
          expect([informed.clock.pendingTimers, informed.clock.pendingImmediates]).toEqual([0, 0]);
        },
      ),
      { numRuns: runs(200) },
    );
  });

  it("a handler that keeps up is called for every change once, while no events are lost", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(gentleStep, { maxLength: 60, size: "max" }), async (steps) => {
        const world = new World(1_000);
        const { informed, account } = world;
        await informed.start();
        const first = world.add("quick", 1_000);
        world.handlers.length = 0;
        for (const one of steps) await world.take(one);
        await world.end();
        expect(first.faults).toEqual([]);
        expect(byKey(first.recorded)).toEqual(byKey(historyOf(account)));
      }),
      { numRuns: 100 },
    );
  });
});

/** The whole history, read from the store. */
function historyOf(store: Storage): string[] {
  const stream = store.watch({ scope: { prefix: "" }, afterRevision: 1, withPrevious: false });
  const all: string[] = [];
  for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
    for (const { type, object } of batch.events) {
      all.push(`${type} ${object.key}@${object.modRevision}`);
    }
  }
  stream.close();
  return all;
}

/** In order for each key; between keys no order is promised. */
function byKey(lines: readonly string[]): string[] {
  const keyOf = (line: string): string => line.split(/[ @]/)[1] ?? "";
  return lines.toSorted((a, b) => (keyOf(a) < keyOf(b) ? -1 : keyOf(a) > keyOf(b) ? 1 : 0));
}
