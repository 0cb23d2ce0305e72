import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
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

describe("A live LATEST_STATE watch", () => {
  it("gets the same batches as an EVERY_EVENT watch", async () => {
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

  it("gets each event of several revisions in one batch, with the object just before it", async () => {
    const watchers = { dispatchIntervalMs: 20 };
    const cached = await CachedStore.ready({ watchers });
    const stream = cached.cacher.watch({ ...latest, withPrevious: true });
    await cached.clock.settle();
    readAll(stream);
    cached.clock.advance(1_000);
    // After a pause it is delivered at once, and the interval begins.
    await cached.write(["a", "1"]);
    expect(readAll(stream)).toEqual(["ADDED:a=1@2 →2"]);
    await cached.write(["a", "2"], ["b", "1"]);
    await cached.write(["a", "3"]);
    await cached.write(["a", null]);
    await cached.clock.elapse(20);
    expect(readAll(stream)).toEqual([
      "MODIFIED:a=2(1)@3 ADDED:b=1@3 MODIFIED:a=3(2)@4 DELETED:a=3(3)@5 →5",
    ]);
  });
});

describe("An unsynced LATEST_STATE watch", () => {
  it("gets its buffer, then all later events as one atomic batch, and is live again", async () => {
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
    ["with a selector", saysYes, ["DELETED:a=yes(yes)@4 ADDED:b=yes(no)@7 ADDED:c=yes@8 →8"]],
  ])("gets one event per changed object, %s", async (_what, predicate, expected) => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const slow = cached.cacher.watch({ ...latest, withPrevious: true, predicate });
    await cached.clock.settle();
    await cached.write(["a", "yes"], ["b", "no"]);
    await cached.clock.elapse(500);
    expect(readAll(slow)).toHaveLength(2);
    await cached.write(["d", "yes"]); // Fills the buffer.
    await cached.write(["a", "no"], ["e", "yes"]);
    await cached.write(["e", null]);
    await cached.write(["a", null]);
    await cached.write(["b", "yes"]);
    await cached.write(["c", "yes"]);
    expect(readAll(slow).slice(1)).toEqual(expected);
  });

  it("is coalesced, not ended, when the event window drops its next events", async () => {
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
    // One entry per object, regardless of the number of events.
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

  it("gets a large coalesced batch in chunks, of which only the last has the revision, and later events after it", async () => {
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
    // No bookmark is sent within the atomic batch.
    await cached.clock.elapse(5_000);
    expect(cached.cacher.stats().coalescing.objects).toBeGreaterThan(0);
    expect(readAll(slow)).toEqual(["ADDED:d=1@6 ADDED:e=1@7 →7", "MODIFIED:a=3@9 →9"]);
    expect(slow.state).toBe("live");
  });

  it("gets a bookmark for events that cancel out", async () => {
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

  it("gets nothing if no event matches", async () => {
    const cached = await CachedStore.ready();
    const stream = cached.cacher.watch({ ...latest, scope: { key: "a" }, afterRevision: 1 });
    await cached.write(["b", "1"]);
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→1"]);
    expect(stream.state).toBe("live");
  });

  it("gets its new resume point at once with eager bookmarks", async () => {
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

  it("ends only if its client takes nothing for the stall timeout", async () => {
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

  it("ends if all backlogs together exceed their bound and its own is the largest", async () => {
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

  it("ends, and is not live again, if the bound is exceeded while it reads", async () => {
    const watchers = { maxBufferBatches: 1, coalescedBytes: 1 };
    const cached = await CachedStore.ready({ watchers });
    const slow = cached.cacher.watch(latest);
    await cached.clock.settle();
    readAll(slow);
    await writeA(cached, 3);
    expect(readAll(slow)).toEqual(["ADDED:a=1@2 →2"]);
    expect([slow.state, reasonOf(slow)]).toEqual(["ended", "SLOW_CONSUMER"]);
    expect(cached.cacher.stats().coalescing).toMatchObject({ held: 0, bytes: 0, ended: 1 });
  });

  it("shares its backlog with watches that stalled at the same point with the same filter", async () => {
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

  it("shares it with watches that read a little later, and these are synced, too", async () => {
    const cached = await CachedStore.ready({ watchers: { maxBufferBatches: 1 } });
    const streams = [cached.cacher.watch(latest), cached.cacher.watch(latest)];
    await cached.clock.settle();
    for (const stream of streams) readAll(stream);
    await writeA(cached, 9);
    const [one, other] = streams;
    if (one === undefined || other === undefined) throw new Error("expected two watches");
    const first = [one.read(), one.read()];
    await cached.write(["a", "10"]);
    const second = [other.read(), other.read()];
    expect(second).toEqual(first);
    expect(second[1]).toBe(first[1]);
    expect([readAll(one), readAll(other)]).toEqual([
      ["MODIFIED:a=10@11 →11"],
      ["MODIFIED:a=10@11 →11"],
    ]);
    // After more than a second another is finished, with all later events.
    const late = cached.cacher.watch({ ...latest, afterRevision: 2 });
    await cached.clock.settle();
    await cached.write(["a", "11"]);
    await cached.clock.elapse(5_000);
    expect(readAll(late)).toEqual(["→2", "MODIFIED:a=11@12 →12"]);
  });
});

describe("The opening of a LATEST_STATE watch", () => {
  it("resumes with one atomic batch of all later events", async () => {
    const cached = await CachedStore.ready();
    await writeA(cached, 9);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 5 });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual(["→5", "MODIFIED:a=9@10 →10"]);
  });

  it("gets each event from before the window, and the others as one atomic batch", async () => {
    const cached = await CachedStore.ready({ eventWindow: { maxEvents: 6 } });
    await writeA(cached, 9);
    const stream = cached.cacher.watch({ ...latest, afterRevision: 3 });
    await cached.clock.settle();
    expect(readAll(stream)).toEqual([
      "→3",
      "MODIFIED:a=3@4 MODIFIED:a=4@5 MODIFIED:a=5@6 MODIFIED:a=6@7 MODIFIED:a=7@8 →8",
      "MODIFIED:a=9@10 →10",
    ]);
  });

  it("is not ended by the number of events after its initial state", async () => {
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
