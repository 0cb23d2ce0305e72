import { expect, it } from "vitest";
import type { Timer } from "../../src/base/clock.ts";
import { WatchFanoutError } from "../../src/base/errors.ts";
import { FakeClock } from "../fake-clock.ts";
import { BusyClock } from "./busy-clock.ts";
import { CachedStore, readAll } from "./cached-store.ts";

const everything = {
  scope: { prefix: "" },
  afterRevision: undefined,
  withPrevious: false,
} as const;

/** Makes the store report that it no longer has the next events. */
function loseHistory({ upstream }: CachedStore): void {
  upstream.at(-1)?.end(new WatchFanoutError("REVISION_TOO_OLD", "Compacted."));
}

/** A clock that runs no callbacks while it is held. */
class HeldUpClock extends FakeClock {
  #held: (() => void)[] | undefined;

  holdUp(): void {
    this.#held = [];
  }

  /** Runs the callback that was set last. */
  runNewest(): void {
    this.#held?.pop()?.();
  }

  release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const callback of held) callback();
  }

  override setImmediate(callback: () => void): Timer {
    const held = this.#held;
    if (held === undefined) return super.setImmediate(callback);
    held.push(callback);
    return { cancel: () => held.splice(held.indexOf(callback), 1) };
  }
}

it("A stream that a relist ends has received all that the cache held, also events not dispatched yet", async () => {
  const clock = new HeldUpClock();
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, clock);
  const stream = cached.cacher.watch(everything);
  await clock.settle();
  readAll(stream);
  clock.holdUp();
  await cached.write(["a", "1"]);
  // The cache has received the event, but not dispatched it to the stream yet.
  clock.runNewest();
  expect([cached.cacher.stats().revision, readAll(stream)]).toEqual([2, []]);
  loseHistory(cached);
  clock.runNewest();
  await clock.elapse(10_000);
  expect(cached.cacher.stats().relists).toBe(1);
  clock.release();
  await clock.settle();
  expect(readAll(stream)).toEqual(["ADDED:a=1@2 →2"]);
  expect(stream.ended).toMatchObject({ reason: "HISTORY_LOST" });
});

/** A busy clock that counts its callbacks. */
class CountingClock extends BusyClock {
  turns = 0;

  override setImmediate(callback: () => void): Timer {
    return super.setImmediate(() => {
      this.turns++;
      callback();
    });
  }
}

it("The readers of all streams that a relist ends are notified in time slices, after the relist is complete", async () => {
  const clock = new CountingClock();
  const cached = await CachedStore.ready({ consistencyIntervalMs: 0 }, clock);
  const streams = Array.from({ length: 50 }, () => cached.cacher.watch(everything));
  await clock.settle();
  const notifiedIn = new Map<number, number>();
  let notified = 0;
  for (const stream of streams) {
    readAll(stream);
    stream.onReadable(() => {
      if (stream.ended === undefined) return;
      notified++;
      notifiedIn.set(clock.turns, (notifiedIn.get(clock.turns) ?? 0) + 1);
      expect(cached.cacher.stats()).toMatchObject({ ready: true, revision: 2, objects: 1 });
    });
  }
  await cached.write(["a", "1"]);
  for (const stream of streams) readAll(stream);
  loseHistory(cached);
  await clock.elapse(10_000);
  expect(notified).toBe(streams.length);
  expect(Math.max(...notifiedIn.values())).toBeLessThanOrEqual(4);
});
