import { describe, expect, it } from "vitest";
import { DeltaFIFO } from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";
import { Indexer } from "../../../../src/client/informer/indexer/indexer.ts";
import fc, { runs } from "../../../property.ts";
import { DeltaModel, type Thing, thing, wordsOf } from "./delta-model.ts";

type Step =
  | { readonly do: "add" | "update" | "delete"; readonly key: string }
  | { readonly do: "replace"; readonly keys: readonly string[] }
  | { readonly do: "resync" | "take" | "finish" | "fail" };

const key = fc.constantFrom("a", "b", "c", "d", "é");
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constantFrom("add", "update", "delete"), key }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("replace" as const), keys: fc.uniqueArray(key) }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constantFrom("take", "finish") }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constantFrom("resync", "fail") }) },
);

/** A DeltaFIFO with consumers that hold their deltas until the test ends or fails them. */
class Driven {
  readonly known = new Indexer<Thing>();
  readonly fifo: DeltaFIFO<Thing>;
  readonly #held: { settle: PromiseWithResolvers<void>; popping: Promise<void> }[] = [];
  #states = 0;

  constructor(capacity: number) {
    this.fifo = new DeltaFIFO({ known: this.known, capacity });
  }

  get held(): number {
    return this.#held.length;
  }

  /** Does one step, also with a model if there is one. Returns what was taken. */
  async do(step: Step, model?: DeltaModel): Promise<string | undefined> {
    switch (step.do) {
      case "add":
      case "update": {
        const object = thing(step.key, ++this.#states);
        this.fifo[step.do](object);
        model?.put(step.do === "add" ? "Added" : "Updated", object);
        return undefined;
      }
      case "delete": {
        const object = thing(step.key, ++this.#states);
        this.fifo.delete(object);
        model?.delete(object);
        return undefined;
      }
      case "replace": {
        const objects = step.keys.map((key) => thing(key, ++this.#states));
        this.fifo.replace(objects);
        model?.replace(objects);
        return undefined;
      }
      case "resync":
        this.fifo.resync();
        model?.resync();
        return undefined;
      case "take":
        return this.fifo.length === 0 ? undefined : this.#take();
      default:
        await this.#finish(step.do === "fail");
        model?.finish(step.do === "fail");
        return undefined;
    }
  }

  #take(): Promise<string> {
    const settle = Promise.withResolvers<void>();
    return new Promise((resolve) => {
      const popping = this.fifo.pop(async (deltas, isInitial) => {
        const newest = deltas.at(-1);
        const key = newest?.object.key ?? "";
        resolve(`${key}: ${wordsOf(deltas)}${isInitial ? " (initial)" : ""}`);
        await settle.promise;
        if (newest === undefined || newest.type === "Deleted") this.known.delete(key);
        else this.known.set(newest.object);
      });
      this.#held.push({ settle, popping });
    });
  }

  async #finish(fails: boolean): Promise<void> {
    const held = this.#held.shift();
    if (held === undefined) return;
    if (fails) held.settle.reject(new Error("failed"));
    else held.settle.resolve();
    await held.popping.catch(() => {});
  }
}

describe("For any changes, and any consumers that take, finish and fail", () => {
  it("a DeltaFIFO behaves as its naive model", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async (steps) => {
        const driven = new Driven(Number.POSITIVE_INFINITY);
        const model = new DeltaModel(new Map());
        for (const next of steps) {
          const taken = await driven.do(next, model);
          if (next.do === "take") expect(taken).toBe(model.take());
          expect(driven.fifo.hasSynced).toBe(model.hasSynced);
          expect(driven.fifo.length).toBe(model.queue.length);
          expect(driven.fifo.pendingDeltas).toBe(pendingOf(model));
        }
      }),
      { numRuns: runs(500) },
    );
  });

  it("a DeltaFIFO with little capacity leads to the same state, within its bound", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 80 }),
        fc.integer({ min: 0, max: 6 }),
        async (steps, capacity) => {
          const driven = new Driven(capacity);
          const state = new Set<string>();
          for (const next of steps) {
            await driven.do(next);
            if (next.do === "add" || next.do === "update") state.add(next.key);
            if (next.do === "delete") state.delete(next.key);
            if (next.do === "replace") {
              state.clear();
              for (const key of next.keys) state.add(key);
            }
            const bound = capacity + 4 * (5 + driven.held);
            expect(driven.fifo.pendingDeltas).toBeLessThanOrEqual(bound);
          }
          while (driven.held > 0) await driven.do({ do: "finish" });
          while (driven.fifo.length > 0) {
            await driven.do({ do: "take" });
            await driven.do({ do: "finish" });
          }
          expect([...driven.known.keys()]).toEqual([...state].sort());
          expect(driven.fifo.pendingDeltas).toBe(0);
        },
      ),
      { numRuns: runs(500) },
    );
  });
});

function pendingOf({ queue, taken }: DeltaModel): number {
  const waiting = [...queue, ...taken.flatMap(({ since }) => since ?? [])];
  return waiting.reduce((sum, { deltas }) => sum + deltas.length, 0);
}
