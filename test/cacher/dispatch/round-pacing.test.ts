import { describe, expect, test } from "vitest";
import { type DispatchedSlice, RoundPacing } from "../../../src/cacher/dispatch/round-pacing.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, readAll } from "../cached-store.ts";

interface Rounds extends Omit<DispatchedSlice, "watchers"> {
  /** The time between the ends of two rounds that do not wait, in milliseconds. */
  readonly everyMs: number;
  /** Default: as many as batches. */
  readonly watchers?: number;
}

/** The longest wait of the last 100 of 200 rounds, and the part of the time that they take. */
function paced({ everyMs, watchers, ...round }: Rounds): { wait: number; share: number } {
  const pacing = new RoundPacing();
  const { busyMs, batches } = round;
  let now = 0;
  let longest = 0;
  let begin = 0;
  for (let i = 0; i < 200; i++) {
    if (i === 100) {
      begin = now;
      longest = 0;
    }
    now += Math.max(0, everyMs - busyMs);
    const wait = pacing.waitMs(now);
    longest = Math.max(longest, wait);
    now += wait + busyMs;
    pacing.record(now, { ...round, watchers: watchers ?? batches });
  }
  return { wait: longest, share: (100 * busyMs) / (now - begin) };
}

describe("Dispatch rounds", () => {
  const one = { revisions: 1, events: 1_000, batches: 1_000 };
  test.each<[string, Rounds, { wait: number; share: number }]>([
    [
      "with an event per batch take half of the time",
      { ...one, busyMs: 8, everyMs: 8 },
      { wait: 8, share: 1 / 2 },
    ],
    [
      "that take less than half of the time do not wait",
      { ...one, busyMs: 8, everyMs: 20 },
      { wait: 0, share: 8 / 20 },
    ],
    [
      "do not wait while few revisions arrive",
      { ...one, busyMs: 30, everyMs: 33 },
      { wait: 0, share: 30 / 33 },
    ],
    [
      "do not wait while few watchers get the same",
      { ...one, busyMs: 8, everyMs: 8, watchers: 5_000 },
      { wait: 0, share: 1 },
    ],
    [
      "of large revisions do not wait while few arrive",
      { busyMs: 30, everyMs: 33, revisions: 1, events: 7_000, batches: 1_000 },
      { wait: 0, share: 30 / 33 },
    ],
    [
      "with 8 events per batch do not wait",
      { busyMs: 8, everyMs: 8, revisions: 8, events: 8_000, batches: 1_000 },
      { wait: 0, share: 1 },
    ],
    [
      "without a batch, whose time is that of filters, do not wait",
      { busyMs: 8, everyMs: 8, revisions: 1, events: 0, batches: 0 },
      { wait: 0, share: 1 },
    ],
    [
      "wait for at most 10 ms",
      { busyMs: 100, everyMs: 100, revisions: 50, events: 70_000, batches: 10_000 },
      { wait: 10, share: 100 / 110 },
    ],
  ])("%s", (_, rounds, expected) => {
    const { wait, share } = paced(rounds);
    expect(wait).toBeCloseTo(expected.wait, 5);
    expect(share).toBeCloseTo(expected.share, 5);
  });

  test("do not wait for revisions that no watcher gets", () => {
    const pacing = new RoundPacing();
    const got = { busyMs: 30, revisions: 1, events: 1_000, batches: 1_000, watchers: 1_000 };
    const others = { busyMs: 0, revisions: 100, events: 0, batches: 0, watchers: 1_000 };
    for (let now = 0; now < 3_300; now += 33) {
      pacing.record(now, got);
      pacing.record(now, others);
      expect(pacing.waitMs(now)).toBe(0);
    }
  });

  test("wait also if others in between had no event for a watcher, or no watcher", () => {
    const pacing = new RoundPacing();
    const got = { busyMs: 8, revisions: 1, events: 1_000, batches: 1_000, watchers: 1_000 };
    let now = 0;
    for (let i = 0; i < 200; i++) {
      now += 8;
      pacing.record(now, got);
      pacing.record(now, { ...got, busyMs: 0, events: 0, batches: 0 });
    }
    expect(pacing.waitMs(now)).toBeCloseTo(10, 5);
    // The one watcher that they are for has left.
    const left = new RoundPacing();
    for (let i = 0; i < 200; i++) left.record(i, { ...got, events: 1, batches: 1, watchers: 0 });
    expect(left.waitMs(200)).toBe(0);
  });

  test("wait no longer once there was a pause", () => {
    const pacing = new RoundPacing();
    const got = { busyMs: 8, revisions: 1, events: 1_000, batches: 1_000, watchers: 1_000 };
    for (let now = 8; now <= 800; now += 8) pacing.record(now, got);
    expect(pacing.waitMs(800)).toBeCloseTo(10, 5);
    expect(pacing.waitMs(804)).toBeCloseTo(6, 5);
    expect(pacing.waitMs(820)).toBe(0);
  });

  test("may take 50 ms at once after a pause", () => {
    const pacing = new RoundPacing();
    let now = 1_000;
    while (pacing.waitMs(now) === 0) {
      now += 2;
      pacing.record(now, { busyMs: 2, revisions: 2, events: 2, batches: 1, watchers: 1 });
    }
    // Of 100 ms they may take half in any case.
    expect(now).toBe(1_100);
  });
});

/** A clock of which sending takes time. */
class SpentClock extends FakeClock {
  #spent = 0;

  spend(ms: number): void {
    this.#spent += ms;
  }

  override now(): number {
    return super.now() + this.#spent;
  }
}

describe("The events of a slow connection", () => {
  test.each([
    ["are sent together once rounds have taken half of the time", 0, true],
    [
      "are sent as they arrive if the operator has set a dispatch interval that has passed",
      5,
      false,
    ],
  ])("%s", async (_, dispatchIntervalMs, isTogether) => {
    const clock = new SpentClock();
    const cached = await CachedStore.ready({ watchers: { dispatchIntervalMs } }, clock);
    const watch = cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: false,
    });
    await clock.settle();
    readAll(watch);
    const batches: number[] = [];
    watch.onReadable(() => {
      clock.spend(6);
      for (const batch of readAll(watch)) batches.push(batch.split("ADDED").length - 1);
    });
    const writes = 30;
    for (let i = 0; i < writes; i++) await cached.write([`key ${i}`, "x"]);
    // The first 50 ms of rounds do not wait. Then one does, until time passes.
    const sentBefore = isTogether ? 17 : writes;
    expect(batches).toEqual(Array.from({ length: sentBefore }, () => 1));
    await clock.elapse(10);
    expect(batches.slice(sentBefore)).toEqual(isTogether ? [writes - sentBefore] : []);
  });
});
