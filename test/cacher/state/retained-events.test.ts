import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import type { WatchEvent } from "../../../src/model/event.ts";
import { CachedStore, read, readAll } from "../cached-store.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Holds weak references to all events that the cache receives from now on. */
function noteEvents({ upstream }: CachedStore): WeakRef<WatchEvent>[] {
  const noted: WeakRef<WatchEvent>[] = [];
  for (const stream of upstream) {
    const take = stream.read.bind(stream);
    stream.read = () => {
      const batch = take();
      for (const event of batch?.events ?? []) noted.push(new WeakRef(event));
      return batch;
    };
  }
  return noted;
}

it.each([
  ["is reading its initial state", true],
  ["is stalled", false],
])(
  "A LATEST_STATE stream that %s holds no event that has been coalesced",
  async (_what, sendInitialEvents) => {
    const cached = await CachedStore.ready({
      consistencyIntervalMs: 0,
      eventWindow: { maxEvents: 10, minEvents: 1 },
      watchers: { maxBufferBatches: 2, batchBytes: 200 },
    });
    for (const key of ["a", "b", "c", "d"]) await cached.write([key, "x".repeat(100)]);
    const stream = cached.cacher.watch({
      scope: { prefix: "" },
      afterRevision: undefined,
      withPrevious: false,
      delivery: "LATEST_STATE",
      sendInitialEvents,
    });
    await cached.clock.elapse(200);
    expect(read(stream)).toBe(sendInitialEvents ? "…" : "→5");
    if (sendInitialEvents) expect(read(stream)).toContain("ADDED:b");
    const noted = noteEvents(cached);
    for (let i = 0; i < 100; i++) await cached.write(["e", `${i}`]);
    await cached.store.compact((await cached.store.currentRevision()) - 1);
    await cached.clock.elapse(2_000);
    // A weak reference that was made or read in this turn keeps its target alive until the next turn.
    await nextTurn();
    collectGarbage();
    expect(noted).toHaveLength(100);
    // The event window holds the last ten and the node before them, and the buffer of a live stream its first two.
    const kept = noted.flatMap((event, i) => (event.deref() === undefined ? [] : [i]));
    expect(kept.filter((i) => i >= 2 && i < 89)).toEqual([]);
    expect(readAll(stream).at(-1)).toMatch(/:e=99@105 →105$/);
  },
);
