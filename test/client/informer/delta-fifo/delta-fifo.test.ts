import { describe, expect, it } from "vitest";
import { DeltaFIFO, type Deltas } from "../../../../src/client/informer/delta-fifo/delta-fifo.ts";
import { Indexer } from "../../../../src/client/informer/indexer/indexer.ts";
import { type Thing, thing, wordsOf } from "./delta-model.ts";

/** A DeltaFIFO whose consumer stores what it takes in an Indexer, if `take` is its only consumer. */
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
  it("hands out all deltas of a key at once, in order, and keys in the order of their first delta", () => {
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

  it("delivers a deletion once, however often it is reported", () => {
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

  it("ignores the deletion of an unknown object", () => {
    const { fifo } = open();
    fifo.delete(thing("a", 1));
    expect(fifo.length).toBe(0);
  });

  it("detects deletions in a relist, for objects that are known, in progress, or queued", async () => {
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

  it("hands out all objects on a resync, except those with other deltas", () => {
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
    ["after the last object of the first list was processed", [1, 2]],
    ["immediately, if that is empty", []],
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

  it("has not synced while an object of the first list is put back after a failure", async () => {
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

  it("puts back the deltas of a failed consumer, before newer ones and behind all other keys", async () => {
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

  it("puts back the deltas of a consumer that throws, too", () => {
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

  it("lets consumers wait for a key, until their signal is aborted", async () => {
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

  it("is empty after clear", async () => {
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

describe("A DeltaFIFO without capacity", () => {
  it("keeps the first delta of a key, its last deletion and the one after it, and the latest", () => {
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

  it("keeps no two deletions in sequence", () => {
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

  it("keeps nothing of an object that was created and deleted unseen", () => {
    const { fifo, take } = open(0);
    for (let i = 0; i < 1_000; i++) {
      fifo.add(thing(`a${i}`, i));
      fifo.delete(thing(`a${i}`, i));
    }
    expect([fifo.length, fifo.pendingDeltas, take()]).toEqual([0, 0, undefined]);
  });

  it("has synced when all of the first list was deleted unseen", () => {
    const { fifo } = open(0);
    fifo.replace([thing("a", 1)]);
    fifo.delete(thing("a", 2));
    expect(fifo.hasSynced).toBe(true);
  });
});

describe("A DeltaFIFO whose capacity is in bytes", () => {
  it("coalesces deltas beyond it, as beyond its capacity", () => {
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

  it("frees the bytes again when its consumer fails, or all is dropped", () => {
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
