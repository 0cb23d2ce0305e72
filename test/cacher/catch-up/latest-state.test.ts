import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { Predicate } from "../../../src/model/predicate.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";
import { text } from "../objects.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;
const latest = { ...everything, delivery: "LATEST_STATE" } as const;

const tight = { watchers: { maxBufferBatches: 2 } } as const;
const saysYes: Predicate = ({ value }) => text(value).includes("yes");

function reasonOf(stream: WatchStream): string | null | undefined {
  const { ended } = stream;
  return ended instanceof WatchFanoutError ? ended.reason : (ended as null | undefined);
}

/** Writes a = 1, 2, 3 and so on. */
async function writeA(cached: CachedStore, count: number): Promise<void> {
  for (let value = 1; value <= count; value++) await cached.write(["a", String(value)]);
}

describe("A LATEST_STATE watch that keeps up", () => {
  it("gets the same batches as one of EVERY_EVENT", async () => {
    const cached = await CachedStore.ready();
    const streams = [cached.cacher.watch(latest), cached.cacher.watch(everything)];
    await cached.clock.settle();
    for (const stream of streams) readAll(stream);
    await cached.write(["a", "1"]);
    await cached.write(["a", "2"]);
    for (let i = 0; i < 2; i++) {
      const [one, other] = streams.map((stream) => stream.read());
      expect(one?.events).toHaveLength(1);
      expect(one).toBe(other);
    }
  });
});

describe("A LATEST_STATE watch that falls behind", () => {
  it("gets what is in its input, then all that came since as one unit, and is live again", async () => {
    const cached = await CachedStore.ready(tight);
    const slow = cached.cacher.watch(latest);
    await cached.clock.settle();
    expect(readAll(slow)).toEqual(["→1"]);
    await writeA(cached, 4);
    await cached.write(["b", "1"], ["c", "1"]);
    await cached.write(["c", null]);
    await cached.write(["a", "5"]);
    expect(slow.state).toBe("stalled");
    expect(readAll(slow)).toEqual([
      "ADDED:a=1@2 →2",
      "MODIFIED:a=2@3 →3",
      "ADDED:b=1@6 MODIFIED:a=5@8 →8",
    ]);
    expect(slow.state).toBe("live");
    await cached.write(["a", "6"]);
    expect(readAll(slow)).toEqual(["MODIFIED:a=6@9 →9"]);
  });

  it.each([
    [
      "without a selector",
      undefined,
      ["DELETED:a=no(yes)@6 MODIFIED:b=yes(no)@7 ADDED:c=yes@8 →8"],
    ],
    ["by a selector", saysYes, ["DELETED:a=yes(yes)@4 ADDED:b=yes(no)@7 ADDED:c=yes@8 →8"]],
  ])("is told each object's change as a whole, %s", async (_what, predicate, expected) => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const slow = cached.cacher.watch({ ...latest, withPrevious: true, predicate });
    await cached.clock.settle();
    await cached.write(["a", "yes"], ["b", "no"]);
    await cached.clock.elapse(500);
    expect(readAll(slow)).toHaveLength(2);
    await cached.write(["d", "yes"]); // Fills the input.
    await cached.write(["a", "no"], ["e", "yes"]);
    await cached.write(["e", null]);
    await cached.write(["a", null]);
    await cached.write(["b", "yes"]);
    await cached.write(["c", "yes"]);
    expect(readAll(slow).slice(1)).toEqual(expected);
  });

  it("is not ended when history no longer has what comes next, but folds it", async () => {
    const cached = await CachedStore.ready({ ...tight, eventWindow: { maxEvents: 3 } });
    const [slow, lost] = [cached.cacher.watch(latest), cached.cacher.watch(everything)];
    await cached.clock.settle();
    readAll(slow);
    readAll(lost);
    for (let round = 0; round < 5; round++) {
      await writeA(cached, 20);
      await cached.write([`new/${round}`, "1"]);
      await cached.clock.elapse(500);
    }
    // One entry for each object, whatever has come.
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 1, objects: 6 });
    expect(reasonOf(lost)).toBeUndefined();
    expect(readAll(lost)).toHaveLength(2);
    expect(reasonOf(lost)).toBe("SLOW_CONSUMER");
    expect(readAll(slow)).toEqual([
      "ADDED:a=1@2 →2",
      "MODIFIED:a=2@3 →3",
      [0, 1, 2, 3].map((i) => `ADDED:new/${i}=1@${22 + 21 * i}`).join(" ") +
        " MODIFIED:a=20@105 ADDED:new/4=1@106 →106",
    ]);
    expect(slow.state).toBe("live");
    await cached.clock.elapse(2_000);
    expect(cached.cacher.stats().coalescing).toEqual({
      held: 0,
      objects: 0,
      bytes: 0,
      delivered: 1,
      ended: 0,
    });
  });

  it("gets a large fold in pieces, of which only the last has the revision, and what came meanwhile after", async () => {
    const options = { watchers: { maxBufferBatches: 1, batchBytes: 150 } };
    const cached = await CachedStore.ready(options);
    const slow = cached.cacher.watch({ ...latest, bookmarkIntervalMs: 1_000 });
    await cached.clock.settle();
    readAll(slow);
    await cached.write(["z", "1"]);
    for (const key of ["a", "b", "c", "d", "e"]) await cached.write([key, "1"]);
    expect(read(slow)).toBe("ADDED:z=1@2 →2");
    expect(read(slow)).toBe("ADDED:a=1@3 ADDED:b=1@4 ADDED:c=1@5 …");
    await cached.write(["a", "2"]);
    await cached.write(["a", "3"]);
    // No bookmark comes while the unit is open.
    await cached.clock.elapse(5_000);
    expect(cached.cacher.stats().coalescing.objects).toBeGreaterThan(0);
    expect(readAll(slow)).toEqual(["ADDED:d=1@6 ADDED:e=1@7 →7", "MODIFIED:a=3@9 →9"]);
    expect(slow.state).toBe("live");
  });

  it("is told of what has come and gone by a bookmark", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const slow = cached.cacher.watch(latest);
    await cached.clock.settle();
    readAll(slow);
    await cached.write(["a", "1"]);
    await cached.write(["b", "1"]);
    await cached.write(["b", null]);
    expect(readAll(slow)).toEqual(["ADDED:a=1@2 →2", "→4"]);
    expect(slow.state).toBe("live");
  });

  it("is told nothing where nothing has happened that it asked for", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...latest, scope: { key: "a" }, afterRevision: 1 });
    await cached.write(["b", "1"]);
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→1"]);
    expect(stream.state).toBe("live");
  });

  it("is told at once how far it has come where it is eager", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const slow = cached.cacher.watch({ ...latest, scope: { key: "a" }, eagerBookmarks: true });
    await cached.clock.settle();
    readAll(slow);
    for (const value of ["1", "2", "3"]) await cached.write(["a", value]);
    await cached.write(["b", "1"]);
    expect(readAll(slow)).toEqual(["ADDED:a=1@2 →2", "MODIFIED:a=3@4 →5"]);
    await cached.write(["b", "2"]);
    expect(readAll(slow)).toEqual(["→6"]);
  });

  it("is ended by taking nothing for the stall timeout, and by that alone", async () => {
    const options = { eventWindow: { maxEvents: 1 }, watchers: { stallTimeoutMs: 10_000 } };
    const cached = await CachedStore.ready(options);
    const stuck = cached.cacher.watch(latest);
    await cached.clock.settle();
    readAll(stuck);
    for (let i = 0; i < 18; i++) {
      expect(reasonOf(stuck)).toBeUndefined();
      await writeA(cached, 20);
      await cached.clock.elapse(500);
    }
    await cached.clock.elapse(2_000);
    expect(reasonOf(stuck)).toBe("SLOW_CONSUMER");
    await cached.clock.elapse(2_000);
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 0, objects: 0 });
  });

  it("is ended where all folds together take more than they may and its own takes the most", async () => {
    const watchers = { maxBufferBatches: 1, coalescedBytes: 3_000 };
    const cached = await CachedStore.ready({ watchers, eventWindow: { maxEvents: 1 } });
    const large = [cached.cacher.watch(latest), cached.cacher.watch(latest)];
    const small = cached.cacher.watch({ ...latest, scope: { prefix: "small/" } });
    await cached.clock.settle();
    for (const stream of [...large, small]) readAll(stream);
    for (let i = 0; i < 60; i++) {
      await cached.write([`large/${i}`, ""], [`small/${i % 3}`, `${i}`]);
      await cached.clock.elapse(500);
      const { bytes, ended } = cached.cacher.stats().coalescing;
      expect(bytes).toBeLessThanOrEqual(3_000);
      expect(ended).toBe(large.filter((stream) => stream.state === "ended").length);
    }
    for (const stream of large) {
      expect(readAll(stream)).toEqual(["ADDED:large/0=@2 ADDED:small/0=0@2 →2"]);
      expect(reasonOf(stream)).toBe("SLOW_CONSUMER");
      expect(String(stream.ended)).toContain("exceeded 3000 bytes");
    }
    expect(cached.cacher.stats()).toMatchObject({
      slowConsumers: 2,
      coalescing: { held: 1, ended: 2 },
    });
    expect(readAll(small)).toEqual([
      "ADDED:small/0=0@2 →2",
      "MODIFIED:small/0=57@59 ADDED:small/1=58@60 ADDED:small/2=59@61 →61",
    ]);
  });

  it("shares its fold with all that fell behind at the same point with the same filter", async () => {
    const cached = await CachedStore.ready({ ...tight, eventWindow: { maxEvents: 5 } });
    const streams = Array.from({ length: 500 }, () => cached.cacher.watch(latest));
    const other = cached.cacher.watch({ ...latest, scope: { prefix: "b" } });
    await cached.clock.settle();
    for (const stream of [...streams, other]) readAll(stream);
    for (let i = 0; i < 9; i++) await cached.write(["a", `${i}`], ["b", `${i}`]);
    await cached.clock.elapse(500);
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 2, objects: 3 });
    const units = streams.map((stream) => [stream.read(), stream.read(), stream.read()].at(-1));
    expect(units[0]?.events).toHaveLength(2);
    expect(new Set(units).size).toBe(1);
    expect(readAll(other).at(-1)).toBe("MODIFIED:b=8@10 →10");
  });

  it("shares it also with those who read on a little later, and is up to date all the same", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const streams = [cached.cacher.watch(latest), cached.cacher.watch(latest)];
    await cached.clock.settle();
    for (const stream of streams) readAll(stream);
    await writeA(cached, 9);
    const [one, other] = streams;
    if (one === undefined || other === undefined) throw new Error("There are two.");
    const first = [one.read(), one.read()];
    await cached.write(["a", "10"]);
    const second = [other.read(), other.read()];
    expect(second).toEqual(first);
    expect(second[1]).toBe(first[1]);
    expect([readAll(one), readAll(other)]).toEqual([
      ["MODIFIED:a=10@11 →11"],
      ["MODIFIED:a=10@11 →11"],
    ]);
    // Much later another is made, of all that came since.
    const late = cached.cacher.watch({ ...latest, afterRevision: 2 });
    await cached.clock.settle();
    await cached.write(["a", "11"]);
    await cached.clock.elapse(5_000);
    expect(readAll(late)).toEqual(["→2", "MODIFIED:a=11@12 →12"]);
  });
});

describe("How a LATEST_STATE watch begins", () => {
  it("resumes with one unit of all that came since", async () => {
    const cached = await CachedStore.ready();
    await writeA(cached, 9);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 5 });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→5", "MODIFIED:a=9@10 →10"]);
  });

  it("is refused where history no longer has what comes next, as any is", async () => {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 2 } });
    await writeA(cached, 9);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 5 });
    await cached.clock.settle();
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD");
  });

  it("is not ended by what is owed to it after its initial state, however much that is", async () => {
    const options = {
      eventWindow: { maxEvents: 2 },
      watchers: { retainedEventBytes: 1, batchBytes: 100 },
    };
    const cached = await CachedStore.ready(options);
    await cached.write(["a", "0"], ["b", "0"], ["c", "0"]);
    const stream = cached.cacher.watch({ ...latest, sendInitialEvents: true });
    await cached.clock.settle();
    const began = [read(stream), read(stream)];
    for (let round = 0; round < 10; round++) {
      await writeA(cached, 10);
      await cached.clock.elapse(500);
    }
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 1, objects: 1 });
    await cached.write(["b", null]);
    expect([...began, ...readAll(stream)]).toEqual([
      "…",
      "ADDED:a=0@2 ADDED:b=0@2 …",
      "ADDED:c=0@2 complete →2",
      "MODIFIED:a=10@102 DELETED:b=0@103 →103",
    ]);
  });
});
