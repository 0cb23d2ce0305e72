import { describe, expect, test } from "vitest";
import {
  historyChanged,
  revisionTooOld,
  upstreamUnavailable,
  WatchFanoutError,
} from "../../../src/base/errors.ts";
import { WatchBatch } from "../../../src/model/event.ts";
import type { PastEvents } from "../../../src/reflector/backfill/past-events.ts";
import {
  type BackfillOptions,
  BackfillQueue,
  WindowBackfill,
} from "../../../src/reflector/backfill/window-backfill.ts";
import { event } from "../../cacher/objects.ts";
import { FakeClock } from "../../fake-clock.ts";
import { ScriptedStorage } from "../scripted-storage.ts";

/**
 * A backfill from revision 60,000 on, with one event per revision, from a storage that responds after `responseMs`. Runs
 * until `forMs` have passed.
 */
async function filled(
  responseMs: (request: number) => number,
  options: Partial<BackfillOptions> = {},
  forMs: number = 10 * 60_000,
) {
  const clock = new FakeClock();
  const storage = new ScriptedStorage();
  /** When the first watch of each chunk was opened, and where it begins. */
  const asked: { readonly at: number; readonly after: number }[] = [];
  storage.onWatch = (stream, { afterRevision = 0, upTo = 0 }) => {
    if (asked.at(-1)?.at !== clock.now()) asked.push({ at: clock.now(), after: afterRevision });
    const events = Array.from({ length: upTo - afterRevision }, (_, i) =>
      event("ADDED", `${afterRevision + i + 1}`, afterRevision + i + 1),
    );
    clock.setTimeout(() => stream.push(new WatchBatch(upTo, events)), responseMs(asked.length));
  };
  const taken: string[] = [];
  /** How far it was after each chunk. */
  const progress: number[] = [];
  const target = {
    room: { events: 1_000_000, bytes: 1e9 },
    prepend: async ({ after, upTo, events }: PastEvents) => {
      taken.push(`${after} to ${upTo}`);
      return { after, events: events.length, isFull: false };
    },
    release: () => void taken.push("release"),
  };
  const fill = new WindowBackfill({
    ...{ storage, clock, target, scope: { prefix: "" }, random: () => 0 },
    ...{
      queue: new BackfillQueue(),
      confirmHistory: async () => {},
      endRevision: 60_000,
      startRevision: 1,
    },
    ...options,
  });
  const running = fill.run(() => void progress.push(fill.backfilledTo));
  await clock.elapse(forMs);
  return { clock, storage, fill, asked, taken, progress, running };
}

const tooLarge = new WatchFanoutError("HISTORY_LOST", "It is too large.", {
  metadata: { current_revision: "1" },
});

describe("A backfill of the event window", () => {
  test("delivers all past events, from the newest to the oldest, without a gap", async () => {
    const { fill, taken, running } = await filled(() => 50);
    await running;
    expect(fill).toMatchObject({ state: "complete", backfilledTo: 1, events: 59_999 });
    expect(taken[0]).toBe("59950 to 60000");
    expect(taken.at(-1)).toMatch(/^1 to /);
    for (const [i, piece] of taken.slice(1).entries()) {
      expect(piece.split(" ")[2]).toBe(taken[i]?.split(" ")[0]);
    }
    // At most sixteen watches of 950 revisions.
    expect(taken.length).toBeGreaterThan(4);
    expect(taken.length).toBeLessThan(10);
  });

  test("pauses three times as long as etcd was busy, without the 100 ms between its passes", async () => {
    const { asked } = await filled(() => 300);
    // Of the 300 ms, 0.25 are for looking up 50 previous objects.
    expect((asked[1]?.at ?? 0) - (asked[0]?.at ?? 0)).toBe(300 + 3 * 199.75);
  });

  test("pauses for at least 20 ms and at most 2 s", async () => {
    const { asked } = await filled((piece) => (piece === 1 ? 10 : 5_000));
    expect((asked[1]?.at ?? 0) - (asked[0]?.at ?? 0)).toBe(10 + 20);
    expect((asked[2]?.at ?? 0) - (asked[1]?.at ?? 0)).toBe(5_000 + 2_000);
  });

  test("ends after three passes in a row that block etcd for half a second", async () => {
    const { fill, taken } = await filled((piece) => (piece === 3 ? 100 : 720));
    expect(fill.state).toBe("costly");
    // The first two, a quick one, and three more.
    expect(taken).toHaveLength(6);
  });

  test("does not count delays that other requests to the store have, too", async () => {
    const { fill, storage, clock } = await filled(() => 720, {}, 0);
    storage.onCurrentRevision = () =>
      new Promise((resolve) => clock.setTimeout(() => resolve(60_000), 100));
    await clock.elapse(60_000);
    expect(fill.state).toBe("complete");
  });

  test.each([
    ["what is kept", 59_500, 59_500],
    ["what it has, if the oldest kept revision is unknown", undefined, 59_750],
  ])("ends at compaction with %s", async (_, oldest, backfilledTo) => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    storage.onWatch = (stream, { afterRevision = 0, upTo = 0 }) => {
      if (afterRevision < 59_500) stream.end(revisionTooOld(afterRevision, oldest));
      else stream.push(new WatchBatch(upTo, []));
    };
    const { fill } = await filled(() => 0, { storage, clock });
    await clock.elapse(60_000);
    expect(fill).toMatchObject({ state: "compacted", backfilledTo, startRevision: backfilledTo });
  });

  test.each([
    ["full", { after: 59_980, events: 20, isFull: true }, 59_980],
    ["conflicting", undefined, 60_000],
  ] as const)(
    "ends as %s if that is what the target makes of a chunk",
    async (state, prepended, backfilledTo) => {
      const room = { events: 1_000, bytes: 1e9 };
      const target = { room, prepend: async () => prepended, release: () => {} };
      const { fill, asked } = await filled(() => 50, { target });
      expect(fill).toMatchObject({ state, backfilledTo });
      expect(asked).toHaveLength(1);
    },
  );

  test("ends as costly if its upstream reads older events for no more of its clients", async () => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    const limited = new WatchFanoutError("RESUME_LIMITED", "There are enough.");
    storage.onWatch = (stream) => stream.end(limited);
    const { fill } = await filled(() => 0, { storage, clock });
    await clock.elapse(60_000);
    expect(fill.state).toBe("costly");
    expect(storage.streams).toHaveLength(1);
  });

  test("requests smaller chunks if a response is too large, and ends if one revision is too large", async () => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    const asked: number[] = [];
    storage.onWatch = (stream, { afterRevision = 0, upTo = 0 }) => {
      asked.push(upTo - afterRevision);
      if (afterRevision < 59_990) stream.end(tooLarge);
      else stream.push(new WatchBatch(upTo, []));
    };
    const { fill } = await filled(() => 0, { storage, clock });
    await clock.elapse(60_000);
    expect(asked[0]).toBe(50);
    expect(fill).toMatchObject({ state: "full", backfilledTo: 59_990, failure: undefined });
  });

  test("waits while the store is away, however often it is asked, and continues then", async () => {
    const { fill, storage, clock } = await filled(() => 10, {}, 0);
    let asked = 0;
    storage.onCurrentRevision = async () => {
      if (++asked <= 20) throw upstreamUnavailable("It is away.");
      return 60_000;
    };
    await clock.elapse(10_000);
    expect(asked).toBeGreaterThan(5);
    expect(fill.state).toBe("running");
    await clock.elapse(10 * 60_000);
    expect(fill).toMatchObject({ state: "complete", backfilledTo: 1 });
  });

  test("delivers nothing before it is certain that the history is the same", async () => {
    let asked = 0;
    const { fill, taken } = await filled(() => 10, {
      confirmHistory: async () => {
        if (++asked <= 2) throw upstreamUnavailable("It is away.");
        if (asked > 3) throw historyChanged(5, 3);
      },
    });
    expect(taken).toEqual(["59950 to 60000"]);
    expect(fill).toMatchObject({ state: "failed", failure: { reason: "HISTORY_CHANGED" } });
    expect(asked).toBe(3 + 5);
  });

  test("pauses at the end of what is read without a request, and releases its memory", async () => {
    const { fill, taken, progress, storage, clock } = await filled(() => 50, {
      eagerRevision: 59_000,
    });
    expect(taken).toEqual(["59950 to 60000", "59750 to 59950", "59000 to 59750", "release"]);
    expect(progress).toEqual([59_950, 59_750, 59_000]);
    expect(fill).toMatchObject({ state: "paused", backfilledTo: 59_000, isOpen: true });
    const requests = storage.calls.length;
    fill.fillTo(59_500);
    await clock.elapse(10 * 60_000);
    expect(storage.calls.length).toBe(requests);
    expect(fill.state).toBe("paused");
  });

  test("fills on request as far as requested, in chunks of full size, and then pauses again", async () => {
    const { fill, taken, clock } = await filled(() => 50, { eagerRevision: 59_000 });
    taken.splice(0);
    fill.fillTo(58_999);
    expect(fill.state).toBe("running");
    await clock.elapse(60_000);
    expect(taken).toEqual(["56000 to 59000", "release"]);
    fill.fillTo(55_000);
    fill.fillTo(50_000);
    await clock.elapse(60_000);
    expect(fill.state).toBe("paused");
    expect(fill.backfilledTo).toBeLessThanOrEqual(50_000);
    fill.fillTo(1);
    await clock.elapse(10 * 60_000);
    expect(fill).toMatchObject({ state: "complete", backfilledTo: 1, events: 59_999 });
  });

  test("pauses earlier if the events without a request are many, and continues on request", async () => {
    const { fill, clock } = await filled(() => 50, { eagerRevision: 59_000, eagerEvents: 200 });
    expect(fill).toMatchObject({ state: "paused", backfilledTo: 59_750, events: 250 });
    fill.fillTo(59_500);
    await clock.elapse(60_000);
    expect(fill).toMatchObject({ state: "paused", backfilledTo: 58_950 });
  });

  test("ends when it is stopped while it is paused", async () => {
    const { fill, running, clock } = await filled(() => 50, { eagerRevision: 59_000 });
    fill.stop();
    await running;
    fill.fillTo(1);
    await clock.elapse(60_000);
    expect(fill).toMatchObject({ state: "stopped", backfilledTo: 59_000, isOpen: false });
  });

  test("delivers nothing after it is stopped", async () => {
    const { fill, taken, running, clock } = await filled(() => 50, {}, 40);
    fill.stop();
    await running;
    await clock.elapse(1_000);
    expect(taken).toEqual([]);
    expect(fill.state).toBe("stopped");
    expect(clock.pendingTimers).toBe(0);
  });

  test.each([
    ["events", { events: 0, bytes: 100 }],
    ["bytes", { events: 100, bytes: 0 }],
  ])("requests nothing if there is no room for %s", async (_, room) => {
    const target = { room, prepend: async () => undefined, release: () => {} };
    const { fill, asked } = await filled(() => 50, { target });
    expect(fill.state).toBe("full");
    expect(asked).toEqual([]);
  });

  test("requests a chunk that has failed again after a backoff, which the next success resets", async () => {
    const clock = new FakeClock();
    const storage = new ScriptedStorage();
    const asked: number[] = [];
    storage.onWatch = (stream, { upTo = 0 }) => {
      asked.push(clock.now());
      if (asked.length === 3) stream.push(new WatchBatch(upTo, []));
      else stream.end(upstreamUnavailable("It is away."));
    };
    await filled(() => 0, { storage, clock });
    await clock.elapse(1_000);
    const pauses = asked.slice(1, 5).map((at, i) => at - (asked[i] as number));
    // Each includes the 20 ms after any chunk.
    expect(pauses).toEqual([20 + 50, 20 + 100, 20, 20 + 50]);
  });

  test.each([...["a target", "a storage", "what confirms the history"]])(
    "fails with an unexpected error of %s",
    async (of) => {
      const fail = async () => {
        throw new Error("unexpected");
      };
      const prepend = of === "a target" ? fail : async () => undefined;
      const target = { room: { events: 100, bytes: 100 }, prepend, release: () => {} };
      const storage = new ScriptedStorage();
      storage.onWatch = (stream, { upTo = 0 }) => stream.push(new WatchBatch(upTo, []));
      if (of === "a storage") storage.onCurrentRevision = fail;
      const fill = new WindowBackfill({
        ...{ storage, target, scope: { prefix: "" }, clock: new FakeClock(), random: () => 0 },
        queue: new BackfillQueue(),
        confirmHistory: of === "what confirms the history" ? fail : async () => {},
        ...{ endRevision: 60, startRevision: 1 },
      });
      await expect(fill.run(() => {})).rejects.toThrow("unexpected");
    },
  );
});
