import { describe, expect, it } from "vitest";
import type { Deltas } from "../../../../src/client/informer/delta-fifo/delta.ts";
import { DeltaFIFO } from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";
import { Indexer } from "../../../../src/client/informer/indexer/indexer.ts";
import { type Thing, thing, wordsOf } from "./delta-model.ts";

/** A DeltaFIFO whose consumer keeps what it takes in an Indexer, as long as `take` is its only consumer. */
function open(capacity?: number) {
  const known = new Indexer<Thing>();
  const fifo = new DeltaFIFO<Thing>({ known, capacity });
  const take = (): string | undefined => {
    const popped = fifo.popNow((deltas, isInitial) => {
      const newest = deltas.at(-1);
      const key = newest?.object.key ?? "";
      if (newest === undefined || newest.type === "Deleted") known.delete(key);
      else known.set(newest.object);
      return `${key}: ${wordsOf(deltas)}${isInitial ? " (initial)" : ""}`;
    });
    return popped?.result;
  };
  return { known, fifo, take };
}

describe("A DeltaFIFO", () => {
  it("hands out all that happened to a key at once, in order, and keys in the order they came", () => {
    const { fifo, take } = open();
    fifo.add(thing("a", 1));
    fifo.add(thing("b", 2));
    fifo.update(thing("a", 3));
    fifo.delete(thing("a", 4));
    fifo.add(thing("a", 5));
    expect([take(), take(), take()]).toEqual([
      "a: Added 1, Updated 3, Deleted 4, Added 5",
      "b: Added 2",
      undefined,
    ]);
  });

  it("has what is gone go once, however often that is said", () => {
    const { fifo, take } = open();
    fifo.add(thing("seen", 1));
    fifo.add(thing("unseen", 2));
    fifo.delete(thing("seen", 3));
    fifo.replace([]);
    fifo.replace([]);
    fifo.delete(thing("seen", 4));
    fifo.delete(thing("unseen", 5));
    expect([take(), take(), take()]).toEqual([
      "seen: Added 1, Deleted 3",
      "unseen: Added 2, Deleted ?2 (initial)",
      undefined,
    ]);
  });

  it("passes over the deletion of what nobody knows", () => {
    const { fifo } = open();
    fifo.delete(thing("a", 1));
    expect(fifo.length).toBe(0);
  });

  it("finds out what vanished in a gap, whether the consumer has it, holds it, or it waits", async () => {
    const { fifo, take } = open();
    fifo.add(thing("known", 1));
    take();
    fifo.add(thing("held", 2));
    const held = Promise.withResolvers<void>();
    const holding = fifo.pop(() => held.promise);
    fifo.add(thing("waiting", 3));
    fifo.replace([thing("new", 4)]);
    held.resolve();
    await holding;
    expect([take(), take(), take(), take(), take()]).toEqual([
      "waiting: Added 3, Deleted ?3 (initial)",
      "new: Replaced 4 (initial)",
      "known: Deleted ?1 (initial)",
      "held: Deleted ?2 (initial)",
      undefined,
    ]);
  });

  it("hands out all there is on a resync, but what is under way anyway", () => {
    const { fifo, take } = open();
    fifo.replace([thing("a", 1), thing("b", 2)]);
    take();
    take();
    fifo.update(thing("b", 3));
    fifo.resync();
    fifo.resync();
    expect([take(), take(), take()]).toEqual(["b: Updated 3", "a: Sync 1", undefined]);
  });

  it.each([
    ["once the last object of the first state has been dealt with", [1, 2]],
    ["at once, where that is empty", []],
  ])("has synced %s", (_what, states) => {
    const { fifo, take } = open();
    fifo.add(thing("before", 9));
    take();
    fifo.delete(thing("before", 10));
    take();
    expect(fifo.hasSynced).toBe(false);
    fifo.replace(states.map((state) => thing(`${state}`, state)));
    fifo.add(thing("after", 7));
    for (const _ of states) {
      expect(fifo.hasSynced).toBe(false);
      take();
    }
    expect(fifo.hasSynced).toBe(true);
  });

  it("has not synced while an object of the first state is back, as its consumer failed", async () => {
    const { fifo, take } = open();
    fifo.add(thing("a", 1));
    const consumer = Promise.withResolvers<void>();
    const popping = fifo.pop(() => consumer.promise);
    fifo.replace([thing("a", 2)]);
    consumer.reject(new Error("not now"));
    await expect(popping).rejects.toThrow("not now");
    expect(fifo.hasSynced).toBe(false);
    expect(take()).toBe("a: Added 1, Replaced 2 (initial)");
    expect(fifo.hasSynced).toBe(true);
  });

  it("gives a key to one consumer at a time", async () => {
    const { fifo } = open();
    fifo.add(thing("a", 1));
    const first = Promise.withResolvers<void>();
    const seen: string[] = [];
    const popping = fifo.pop((deltas) => {
      seen.push(wordsOf(deltas));
      return first.promise;
    });
    fifo.update(thing("a", 2));
    expect(fifo.popNow((deltas) => seen.push(wordsOf(deltas)))).toBeUndefined();
    first.resolve();
    await popping;
    fifo.popNow((deltas) => seen.push(wordsOf(deltas)));
    expect(seen).toEqual(["Added 1", "Updated 2"]);
  });

  it("takes back what its consumer fails at, before what came since and behind all others", async () => {
    const { fifo, take } = open();
    fifo.add(thing("a", 1));
    const consumer = Promise.withResolvers<void>();
    let kept: Deltas<Thing> = [];
    const popping = fifo.pop((deltas) => {
      kept = deltas;
      return consumer.promise;
    });
    fifo.add(thing("b", 2));
    fifo.update(thing("a", 3));
    consumer.reject(new Error("not now"));
    await expect(popping).rejects.toThrow("not now");
    expect([take(), take()]).toEqual(["b: Added 2", "a: Added 1, Updated 3"]);
    expect(wordsOf(kept)).toBe("Added 1");
  });

  it("takes back what its consumer throws at, too", () => {
    const { fifo, take } = open();
    fifo.replace([thing("a", 1)]);
    const fail = (): never => {
      throw new Error("not now");
    };
    expect(() => fifo.popNow(fail)).toThrow("not now");
    expect(fifo.hasSynced).toBe(false);
    expect(take()).toBe("a: Replaced 1 (initial)");
    expect(fifo.hasSynced).toBe(true);
  });

  it("has consumers wait for a key, and lets them go when they are told to", async () => {
    const { fifo } = open();
    const leaving = new AbortController();
    const left = fifo.pop(() => "left", leaving.signal);
    const one = fifo.pop(wordsOf);
    const other = fifo.pop(wordsOf);
    leaving.abort(new Error("enough"));
    await expect(left).rejects.toThrow("enough");
    fifo.add(thing("a", 1));
    fifo.add(thing("b", 2));
    expect(await Promise.all([one, other])).toEqual(["Added 1", "Added 2"]);
    await expect(fifo.pop(wordsOf, leaving.signal)).rejects.toThrow("enough");
  });

  it("holds nothing any more once it is cleared", async () => {
    const { fifo, take } = open();
    fifo.add(thing("a", 1));
    const consumer = Promise.withResolvers<void>();
    const popping = fifo.pop(() => consumer.promise);
    fifo.update(thing("a", 2));
    fifo.add(thing("b", 3));
    fifo.clear();
    consumer.resolve();
    await popping;
    expect([fifo.length, fifo.pendingDeltas, take()]).toEqual([0, 0, undefined]);
  });
});

describe("A DeltaFIFO without room", () => {
  it("keeps of a key how it began, its last deletion and what followed, and the newest", () => {
    const { fifo, take } = open(0);
    fifo.add(thing("a", 0));
    take();
    for (const state of [1, 2, 3]) fifo.update(thing("a", state));
    fifo.delete(thing("a", 4));
    fifo.add(thing("a", 5));
    fifo.delete(thing("a", 6));
    for (const state of [7, 8, 9]) fifo.update(thing("a", state));
    expect(fifo.pendingDeltas).toBe(4);
    expect(take()).toBe("a: Updated 1, Deleted 6, Updated 7, Updated 9");
    expect(fifo.coalescedDeltas).toBe(5);
  });

  it("keeps no deletion before another", () => {
    const { fifo, take } = open(0);
    fifo.add(thing("a", 1));
    take();
    fifo.delete(thing("a", 2));
    fifo.add(thing("a", 3));
    fifo.update(thing("a", 4));
    fifo.update(thing("a", 5));
    fifo.delete(thing("a", 6));
    expect(take()).toBe("a: Deleted 6");
  });

  it("keeps nothing of what came and went unseen", () => {
    const { fifo, take } = open(0);
    for (let i = 0; i < 1_000; i++) {
      fifo.add(thing(`a${i}`, i));
      fifo.delete(thing(`a${i}`, i));
    }
    expect([fifo.length, fifo.pendingDeltas, take()]).toEqual([0, 0, undefined]);
  });

  it("has synced when all of the first state has gone unseen", () => {
    const { fifo } = open(0);
    fifo.replace([thing("a", 1)]);
    fifo.delete(thing("a", 2));
    expect(fifo.hasSynced).toBe(true);
  });
});

describe("A DeltaFIFO whose room is counted in bytes", () => {
  it("folds what comes beyond it, as beyond its capacity", () => {
    const known = new Indexer<Thing>();
    const fifo = new DeltaFIFO<Thing>({ known, capacityBytes: 25, bytesOf: () => 5 });
    for (let state = 1; state <= 5; state++) fifo.update(thing("a", state));
    expect([fifo.pendingDeltas, fifo.pendingBytes, fifo.coalescedDeltas]).toEqual([5, 25, 0]);
    fifo.update(thing("a", 6));
    expect([fifo.pendingDeltas, fifo.pendingBytes]).toEqual([2, 10]);
    const words = fifo.popNow(wordsOf)?.result;
    expect(words).toBe("Updated 1, Updated 6");
    expect(fifo.pendingBytes).toBe(0);
  });

  it("has as much of it again when its consumer fails, or all is dropped", () => {
    const known = new Indexer<Thing>();
    const fifo = new DeltaFIFO<Thing>({ known, capacityBytes: 25, bytesOf: () => 5 });
    fifo.add(thing("a", 1));
    fifo.update(thing("a", 2));
    const failing = (): never => {
      throw new Error("Not now.");
    };
    expect(() => fifo.popNow(failing)).toThrow("Not now.");
    expect(fifo.pendingBytes).toBe(10);
    fifo.clear();
    expect(fifo.pendingBytes).toBe(0);
  });
});
