import { setImmediate as nextTurn } from "node:timers/promises";
import { pino } from "pino";
import { describe, expect, it } from "vitest";
import { hasReason } from "../../../src/base/errors.ts";
import { Cacher } from "../../../src/cacher/cacher.ts";
import { DeepReads } from "../../../src/cacher/catch-up/deep-reads.ts";
import type { CacherOptions } from "../../../src/cacher/options.ts";
import type { CacheWatcher } from "../../../src/cacher/watch/cache-watcher.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { type Codec, opaqueCodec } from "../../../src/codec/codec.ts";
import type { WatchEvent } from "../../../src/model/event.ts";
import { BackfillQueue } from "../../../src/reflector/backfill/window-backfill.ts";
import { noAttributes } from "../../../src/selector/attributes.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { WatchStream } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";
import { BusyClock } from "../busy-clock.ts";
import { read, readAll, silent } from "../cached-store.ts";
import { short } from "../objects.ts";
import { HeldPast } from "../withheld-past.ts";

const value = (text: string): Buffer => Buffer.from(text);

/** A store at `revision`, after as many writes of `a`, and a started Cacher over it. */
async function started(revision: number, options: Partial<CacherOptions> = {}) {
  const clock = new FakeClock();
  const store = new HeldPast({ clock });
  for (let r = 2; r <= revision; r++) await store.put({ key: "a", value: value(`${r}`) });
  store.startedAt = revision;
  const cacher = cacherOver(store, clock, options);
  await clock.settle();
  return { clock, store, cacher, resume: (after: number) => resumed(cacher, after) };
}

function cacherOver(
  storage: MemoryStorage,
  clock: FakeClock,
  options: Partial<CacherOptions> = {},
): Cacher {
  const cacher = new Cacher({
    ...{ storage, clock, logger: silent, name: "things", random: () => 0.5 },
    // So that a watch ends with REVISION_TOO_OLD where the backfill has not come to.
    deepReads: new DeepReads(clock, { concurrent: 0 }),
    ...options,
  });
  cacher.start();
  return cacher;
}

function resumed(cacher: Cacher, afterRevision: number): CacheWatcher {
  return cacher.watch({ scope: { prefix: "" }, afterRevision, withPrevious: true });
}

function reasonOf({ ended }: WatchStream): string | undefined {
  return hasReason(ended, "REVISION_TOO_OLD")
    ? `REVISION_TOO_OLD, oldest ${ended.metadata["oldest_revision"]}`
    : ended?.message;
}

/** The events that a watch has now, without its resume points. */
function eventsOf(stream: CacheWatcher): string[] {
  const parts = readAll(stream).flatMap((batch) => batch.split(" "));
  return parts.filter((part) => !part.startsWith("→"));
}

const oneMinute = 60_000;

describe("During a backfill, a Cacher", () => {
  it("is ready, and delivers new events", async () => {
    const { store, cacher, clock } = await started(1_000);
    expect(cacher.ready).toBe(true);
    expect(cacher.stats().backfill).toMatchObject({ state: "running", revisions: 0, events: 0 });
    const stream = cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: true,
    });
    await clock.settle();
    await store.put({ key: "b", value: value("1") });
    await clock.settle();
    expect(readAll(stream)).toEqual(["→1000", "ADDED:b=1@1001 →1001"]);
    const at = { match: "LINEARIZABLE" } as const;
    expect((await cacher.list({ prefix: "", limit: 0, at })).items).toHaveLength(2);
    await cacher.close();
    await clock.settle();
    expect(clock.pendingTimers).toBe(0);
  });

  it("delays watches that resume from a missing part, then delivers every event of the cache's history to them", async () => {
    const { store, cacher, clock, resume } = await started(1_000);
    const stream = resume(997);
    const current = resume(1_000);
    await clock.settle();
    await store.put({ key: "a", value: value("1001") });
    await clock.elapse(5_000);
    expect(read(stream)).toBeUndefined();
    expect(stream.ended).toBeUndefined();
    expect(cacher.stats().backfill.waiting).toBe(1);
    expect(readAll(current)).toEqual(["→1000", "MODIFIED:a=1001(1000)@1001 →1001"]);
    store.releaseFrom(0);
    await clock.elapse(1_000);
    expect([...store.histories]).toEqual([cacher.currentHistoryId]);
    expect(readAll(stream).join(" ")).toBe(
      "→997 MODIFIED:a=998(997)@998 MODIFIED:a=999(998)@999 " +
        "MODIFIED:a=1000(999)@1000 MODIFIED:a=1001(1000)@1001 →1001",
    );
    expect(cacher.stats().backfill.waiting).toBe(0);
  });

  it("delays LATEST_STATE watches as well, then delivers the changes in one atomic batch", async () => {
    const { store, cacher, clock } = await started(1_000);
    const stream = cacher.watch({
      scope: { prefix: "" },
      afterRevision: 900,
      withPrevious: true,
      delivery: "LATEST_STATE",
    });
    await clock.elapse(1_000);
    expect(read(stream)).toBeUndefined();
    store.releaseFrom(0);
    await clock.elapse(5_000);
    expect(readAll(stream)).toEqual(["→900", "MODIFIED:a=1000(900)@1000 →1000"]);
  });

  it("fills the newest part first, and serves watches that resume from it at once", async () => {
    const { store, cacher, clock, resume } = await started(1_000);
    const newest = Math.max(...store.asked);
    expect(newest).toBeGreaterThan(700);
    store.releaseFrom(newest);
    await clock.elapse(1_000);
    const [recent, old] = [resume(newest), resume(newest - 1)];
    await clock.settle();
    expect(read(recent)).toBe(`→${newest}`);
    expect(read(old)).toBeUndefined();
    expect(cacher.stats()).toMatchObject({
      backfill: { state: "running", revisions: 1_000 - newest, events: 1_000 - newest },
      eventWindow: { oldestRevision: newest },
    });
  });

  it("delays no watch for longer than 10 s", async () => {
    const { cacher, clock, resume } = await started(1_000);
    const stream = resume(500);
    await clock.elapse(9_999);
    expect(stream.ended).toBeUndefined();
    await clock.elapse(1);
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD, oldest 1000");
    expect(cacher.stats().backfill.waiting).toBe(0);
  });

  it("delays no watch that resumes from a part beyond the backfill", async () => {
    const { clock, resume } = await started(1_000, { eventWindow: { maxEvents: 100 } });
    const stream = resume(899);
    await clock.settle();
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD, oldest 1000");
  });

  it("releases waiting watches that are closed", async () => {
    const { cacher, clock, resume } = await started(1_000);
    const stream = resume(500);
    await clock.settle();
    expect(cacher.stats().backfill.waiting).toBe(1);
    stream.close();
    await clock.settle();
    expect(cacher.stats().backfill.waiting).toBe(0);
  });

  it("ends the wait with REVISION_TOO_OLD if the store is compacted meanwhile", async () => {
    const { cacher, clock, store, resume } = await started(1_000);
    const stream = resume(300);
    await clock.settle();
    await store.compact(500);
    store.releaseFrom(0);
    await clock.elapse(oneMinute);
    // As far as the backfill had reached when the compaction was detected.
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD, oldest 750");
    expect(cacher.stats().backfill).toMatchObject({ state: "compacted", revisions: 500 });
    const oldest = resume(500);
    await clock.settle();
    expect(read(oldest)).toBe("→500");
  });
});

describe("A Cacher whose backfill is paused", () => {
  async function paused() {
    const opened = await started(5_000);
    opened.store.releaseFrom(0);
    await opened.clock.elapse(oneMinute);
    expect(opened.cacher.stats().backfill).toMatchObject({ state: "paused", revisions: 1_000 });
    return opened;
  }

  it("has the newest events without a request, and reads no others", async () => {
    const { store, clock, resume } = await paused();
    const { length } = store.asked;
    const stream = resume(4_000);
    await clock.elapse(5_000);
    expect(eventsOf(stream)[0]).toBe("MODIFIED:a=4001(4000)@4001");
    expect(store.asked.length).toBe(length);
  });

  it("reads older ones when a watch resumes from them, once for all", async () => {
    const { cacher, clock, resume } = await paused();
    const streams = [3_000, 3_500].map(resume);
    await clock.elapse(5_000);
    for (const [i, after] of [3_000, 3_500].entries()) {
      const events = eventsOf(streams[i] as CacheWatcher);
      expect(events[0]).toBe(`MODIFIED:a=${after + 1}(${after})@${after + 1}`);
      expect(events.at(-1)).toBe("MODIFIED:a=5000(4999)@5000");
      expect(events.length).toBe(5_000 - after);
    }
    expect(cacher.stats().backfill).toMatchObject({ state: "paused", waiting: 0 });
    const first = resume(2);
    await clock.elapse(5_000);
    expect(eventsOf(first)[0]).toBe("MODIFIED:a=3(2)@3");
    expect(cacher.stats().backfill.state).toBe("complete");
  });

  it("links them to what was written, created and deleted meanwhile", async () => {
    const { store, clock, resume } = await paused();
    await store.put({ key: "b", value: value("1") });
    await store.delete({ key: "a" });
    await store.put({ key: "a", value: value("again") });
    await clock.settle();
    const stream = resume(3_998);
    await clock.elapse(5_000);
    const events = eventsOf(stream);
    expect(events.slice(0, 2)).toEqual([
      "MODIFIED:a=3999(3998)@3999",
      "MODIFIED:a=4000(3999)@4000",
    ]);
    expect(events.length).toBe(5_003 - 3_998);
    expect(events.slice(-3)).toEqual([
      "ADDED:b=1@5001",
      "DELETED:a=5000(5000)@5002",
      "ADDED:a=again@5003",
    ]);
  });

  it("ends the wait of a watch if the window has dropped its oldest events meanwhile", async () => {
    const { store, clock, cacher } = await started(5_000, { eventWindow: { maxEvents: 2_000 } });
    store.releaseFrom(0);
    await clock.elapse(5_000);
    for (let i = 0; i < 1_500; i++) await store.put({ key: "b", value: value("1") });
    await clock.settle();
    const stream = resumed(cacher, 3_500);
    await clock.elapse(5_000);
    expect(reasonOf(stream)).toMatch(/^REVISION_TOO_OLD/);
    expect(cacher.stats().backfill.state).toBe("full");
  });

  it("has nothing to close but its watch", async () => {
    const { cacher, clock } = await paused();
    await cacher.close();
    await clock.settle();
    expect(clock.pendingTimers).toBe(0);
    expect(cacher.stats().backfill.state).toBe("stopped");
  });
});

describe("The first list", () => {
  it("is decoded in time slices, before it is served from", async () => {
    const clock = new BusyClock();
    const store = new MemoryStorage({ clock });
    for (let i = 0; i < 1_000; i++) await store.put({ key: `${i}`, value: value('{"a": 1}') });
    let decoded = 0;
    const codec: Codec = {
      ...opaqueCodec,
      hasAttributes: true,
      attributesOf: () => {
        decoded++;
        return noAttributes;
      },
    };
    const attributes = new AttributeReader(codec, clock, silent);
    const cacher = cacherOver(store, clock, { attributes });
    const inOneTurn: number[] = [];
    for (let turns = 0; !cacher.ready && turns < 1_000; turns++) {
      const before = decoded;
      await nextTurn();
      clock.runTurn();
      inOneTurn.push(decoded - before);
    }
    expect(decoded).toBe(1_000);
    // A step covers 64 objects, and the clock leaves time for few steps in a turn.
    expect(Math.max(...inOneTurn)).toBeLessThanOrEqual(5 * 64);
  });
});

describe("The backfill of the event window", () => {
  async function filled(options: Partial<CacherOptions> = {}) {
    const world = await started(1_000, options);
    world.store.releaseFrom(0);
    await world.clock.elapse(oneMinute);
    return world;
  }

  it("ends at the beginning of the history", async () => {
    const { cacher, store } = await filled();
    expect(cacher.stats()).toMatchObject({
      backfill: { state: "complete", revisions: 999, events: 999 },
      eventWindow: { events: 999, oldestRevision: 1 },
    });
    expect(store.asked.at(-1)).toBe(1);
  });

  it("requests nothing if the store has no older events", async () => {
    const { cacher, store } = await started(1);
    expect(store.asked).toEqual([]);
    expect(cacher.stats().backfill.state).toBe("complete");
  });

  it("ends at the maximum number of events in the window, and requests no more", async () => {
    const { cacher, store } = await filled({ eventWindow: { maxEvents: 300 } });
    expect(cacher.stats().eventWindow).toMatchObject({ events: 300, oldestRevision: 700 });
    expect(Math.min(...store.asked)).toBe(700);
  });

  it("ends at the maximum bytes of the window", async () => {
    const { cacher, clock } = await filled({ eventWindow: { maxBytes: 50_000 } });
    const { backfill, eventWindow } = cacher.stats();
    expect(backfill.state).toBe("full");
    expect(eventWindow.bytes).toBeLessThanOrEqual(50_000);
    expect(eventWindow.bytes).toBeGreaterThan(45_000);
    expect(eventWindow.events).toBe(1_000 - eventWindow.oldestRevision);
    const [stream, older] = [eventWindow.oldestRevision, eventWindow.oldestRevision - 1].map(
      (revision) => resumed(cacher, revision),
    );
    await clock.settle();
    expect(stream && read(stream)).toBe(`→${eventWindow.oldestRevision}`);
    expect(older && reasonOf(older)).toBe(`REVISION_TOO_OLD, oldest ${eventWindow.oldestRevision}`);
  });

  it("ends if new events fill the window", async () => {
    const { cacher, store, clock } = await started(1_000, { eventWindow: { maxEvents: 100 } });
    for (let i = 0; i < 150; i++) await store.put({ key: "b", value: value(`${i}`) });
    await clock.settle();
    store.releaseFrom(0);
    await clock.elapse(oneMinute);
    expect(cacher.stats()).toMatchObject({
      backfill: { state: "full", events: 0 },
      eventWindow: { events: 100, oldestRevision: 1_050 },
    });
  });

  it("ends on a relist, after which earlier resume points are refused", async () => {
    const { cacher, store, clock, resume } = await started(1_000);
    const stream = resume(900);
    await clock.settle();
    store.failUpstream();
    await store.put({ key: "b", value: value("1") });
    await store.compact(1_001);
    await clock.elapse(oneMinute);
    expect(cacher.stats()).toMatchObject({ relists: 1, backfill: { state: "stopped" } });
    expect(stream.ended).toMatchObject({ reason: "HISTORY_LOST" });
    store.releaseFrom(0);
    await clock.elapse(oneMinute);
    expect(cacher.stats().eventWindow).toMatchObject({ events: 0, oldestRevision: 1_001 });
    const later = resume(1_000);
    await clock.settle();
    expect(reasonOf(later)).toBe("REVISION_TOO_OLD, oldest 1001");
  });

  it("is retried when the store fails, and ends after the fifth failure, with one log line", async () => {
    const lines: string[] = [];
    const logger = pino({ level: "warn" }, { write: (line: string) => lines.push(line) });
    const { cacher, store, clock, resume } = await started(1_000, { logger });
    const stream = resume(900);
    store.failPast(4);
    await clock.elapse(9_000);
    expect(cacher.stats().backfill.state).toBe("running");
    expect(stream.ended).toBeUndefined();
    store.failPast(1);
    await clock.elapse(oneMinute);
    expect(cacher.stats().backfill.state).toBe("failed");
    expect(reasonOf(stream)).toBe("REVISION_TOO_OLD, oldest 1000");
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { resource: "things", state: "failed", err: { reason: "UPSTREAM_UNAVAILABLE" } },
    ]);
  });

  it("alternates with others over the same store, chunk by chunk", async () => {
    const backfillQueue = new BackfillQueue();
    const worlds = [
      await started(1_000, { backfillQueue }),
      await started(1_000, { backfillQueue }),
    ];
    const [first, second] = worlds;
    expect(first?.store.asked.length).toBeGreaterThan(0);
    await first?.clock.elapse(5_000);
    expect(second?.store.asked).toEqual([]);
    first?.store.releaseFrom(0);
    await first?.clock.elapse(5_000);
    expect(second?.store.asked.length).toBeGreaterThan(0);
    expect(first?.cacher.stats().backfill.state).toBe("running");
    second?.store.releaseFrom(0);
    for (let i = 0; i < 20; i++) for (const world of worlds) await world.clock.elapse(1_000);
    for (const { cacher } of worlds) expect(cacher.stats().backfill.state).toBe("complete");
  });

  it("refuses events that can't have led to the cached state", async () => {
    const { cacher, store, clock } = await started(1_000);
    store.forge((event) => (event.revision === 975 ? undefined : event));
    store.releaseFrom(0);
    await clock.elapse(oneMinute);
    expect(cacher.stats()).toMatchObject({
      backfill: { state: "conflicting", events: 0 },
      eventWindow: { events: 0, oldestRevision: 1_000 },
    });
  });
});

describe("For any writes before and during a backfill", () => {
  const write = fc.record({
    put: fc.uniqueArray(fc.constantFrom("a", "b", "c", "d", "e"), { maxLength: 4 }),
    remove: fc.constantFrom("a", "b", "c", "d", "e", ""),
    ms: fc.constantFrom(0, 0, 0, 5, 30),
  });
  type Write = { readonly put: string[]; readonly remove: string; readonly ms: number };

  async function take(store: MemoryStorage, { put, remove }: Write): Promise<void> {
    const puts = put.map((key) => ({
      type: "put" as const,
      key,
      value: value(`${Math.random()}`),
    }));
    const isRemoved = remove !== "" && !put.includes(remove);
    const removals = isRemoved ? [{ type: "delete" as const, key: remove }] : [];
    if (puts.length + removals.length > 0) await store.txn([...puts, ...removals]);
  }

  function eventsOf(stream: WatchStream): string[] {
    const events: WatchEvent[] = [];
    for (let batch = stream.read(); batch !== undefined; batch = stream.read()) {
      events.push(...batch.events);
    }
    return events.map(short);
  }

  it("a watch from every resume point delivers the same as one of the store", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(write, { minLength: 1, maxLength: 400, size: "max" }),
        fc.array(write, { maxLength: 40 }),
        fc.constantFrom(10, 100, 100_000),
        async (before, during, maxEvents) => {
          const clock = new FakeClock();
          const store = new MemoryStorage({ clock });
          for (const each of before) await take(store, each);
          const begunAt = await store.currentRevision();
          const cacher = cacherOver(store, clock, {
            eventWindow: { maxEvents },
            consistencyIntervalMs: 0,
          });
          await clock.settle();
          // Watches that are open already must not receive earlier events.
          const live = cacher.watch({
            scope: { prefix: "" },
            afterRevision: begunAt,
            withPrevious: true,
          });
          const heard: string[] = [];
          for (const each of during) {
            await take(store, each);
            await clock.elapse(each.ms);
            heard.push(...eventsOf(live));
          }
          // Less than the stall timeout of a stream.
          await clock.elapse(oneMinute / 2);
          expect(cacher.stats().backfill.state).toMatch(/complete|full/);
          const { oldestRevision, events } = cacher.stats().eventWindow;
          if (maxEvents > 10_000) expect(oldestRevision).toBe(1);
          else expect(events).toBeLessThanOrEqual(maxEvents);
          const newest = await store.currentRevision();
          for (let after = oldestRevision; after <= newest; after++) {
            const request = { scope: { prefix: "" }, afterRevision: after, withPrevious: true };
            const [ours, theirs] = [cacher.watch(request), store.watch(request)];
            await clock.settle();
            expect(eventsOf(ours)).toEqual(eventsOf(theirs));
            ours.close();
            theirs.close();
          }
          const theirs = store.watch({
            scope: { prefix: "" },
            afterRevision: begunAt,
            withPrevious: true,
          });
          expect([...heard, ...eventsOf(live)]).toEqual(eventsOf(theirs));
          await cacher.close();
          await clock.settle();
          expect(clock.pendingTimers).toBe(0);
        },
      ),
      { numRuns: 20 },
    );
  });
});
