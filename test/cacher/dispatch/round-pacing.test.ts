import { describe, expect, test } from "vitest";
import { RoundPacing } from "../../../src/cacher/dispatch/round-pacing.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, readAll } from "../cached-store.ts";

interface Rounds {
  /** The time that each takes, in milliseconds. */
  readonly busyMs: number;
  /** The time between the ends of two rounds that do not wait, in milliseconds. */
  readonly everyMs: number;
  /** How many arrive for each. Default: 1. */
  readonly revisions?: number;
  readonly events: number;
  readonly batches: number;
}

/** The longest wait of the last 100 of 200 rounds, and the part of the time that they take. */
function paced(rounds: Rounds): { wait: number; share: number } {
  const { busyMs, everyMs, events, batches, revisions = 1 } = rounds;
  const pacing = new RoundPacing();
  let now = 0;
  let longest = 0;
  let begin = 0;
  for (let round = 0; round < 200; round++) {
    if (round === 100) {
      begin = now;
      longest = 0;
    }
    now += Math.max(0, everyMs - busyMs);
    const wait = pacing.waitMs(now);
    longest = Math.max(longest, wait);
    now += wait + busyMs;
    pacing.record(now, busyMs, revisions, events, batches);
  }
  return { wait: longest, share: (100 * busyMs) / (now - begin) };
}

describe("Dispatch rounds", () => {
  test.each<[string, Rounds, { wait: number; share: number }]>([
    [
      "with an event per batch take half of the time",
      { busyMs: 8, everyMs: 8, revisions: 3, events: 1_000, batches: 1_000 },
      { wait: 8, share: 1 / 2 },
    ],
    [
      "that take less than half of the time do not wait",
      { busyMs: 8, everyMs: 20, events: 1_000, batches: 1_000 },
      { wait: 0, share: 8 / 20 },
    ],
    [
      "do not wait if no other revision will arrive meanwhile",
      { busyMs: 20, everyMs: 33, events: 1_000, batches: 1_000 },
      { wait: 0, share: 20 / 33 },
    ],
    [
      "with 8 events per batch do not wait",
      { busyMs: 8, everyMs: 8, revisions: 8, events: 8_000, batches: 1_000 },
      { wait: 0, share: 1 },
    ],
    [
      "without a batch, whose time is that of filters, do not wait",
      { busyMs: 8, everyMs: 8, events: 0, batches: 0 },
      { wait: 0, share: 1 },
    ],
    [
      "wait for at most 10 ms",
      { busyMs: 300, everyMs: 300, revisions: 50, events: 100_000, batches: 100_000 },
      { wait: 10, share: 300 / 310 },
    ],
  ])("%s", (_, rounds, expected) => {
    const { wait, share } = paced(rounds);
    expect(wait).toBeCloseTo(expected.wait, 5);
    expect(share).toBeCloseTo(expected.share, 5);
  });

  test("may take 50 ms at once after a pause", () => {
    const pacing = new RoundPacing();
    let now = 1_000;
    while (pacing.waitMs(now) === 0) {
      now += 2;
      pacing.record(now, 2, 2, 1, 1);
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
    expect(batches[0]).toBe(1);
    expect(batches.length < writes).toBe(isTogether);
    await clock.elapse(20);
    expect(batches.reduce((sum, events) => sum + events)).toBe(writes);
    expect(Math.max(...batches) > 1).toBe(isTogether);
  });
});
