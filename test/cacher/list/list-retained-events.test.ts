import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import type { WatchEvent } from "../../../src/model/event.ts";
import { CachedStore } from "../cached-store.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** Which of the events that come while `act` runs are still held by somebody afterwards. */
async function heldEvents(
  { upstream }: CachedStore,
  act: () => Promise<void>,
): Promise<{ readonly came: number; readonly held: readonly number[] }> {
  const noted: WeakRef<WatchEvent>[] = [];
  for (const stream of upstream) {
    const take = stream.read.bind(stream);
    stream.read = () => {
      const batch = take();
      for (const event of batch?.events ?? []) noted.push(new WeakRef(event));
      return batch;
    };
  }
  await act();
  // A weak reference that was made in this turn, or looked at, keeps what it is to until the next.
  await nextTurn();
  collectGarbage();
  return {
    came: noted.length,
    held: noted.flatMap((event, i) => (event.deref() === undefined ? [] : [i])),
  };
}

async function filled(): Promise<CachedStore> {
  const cached = await CachedStore.ready({
    consistencyIntervalMs: 0,
    eventWindow: { maxEvents: 10, minEvents: 1 },
  });
  for (const key of ["a", "b", "c", "d"]) await cached.write([key, "x"]);
  return cached;
}

/** So many changes of one object, all but the last of which nobody but history can have a use for. */
async function overwrite(cached: CachedStore, times: number): Promise<void> {
  for (let i = 0; i < times; i++) await cached.write(["z", `${i}`]);
  await cached.store.compact((await cached.store.currentRevision()) - 1);
}

describe("Events that have left the event window are held by no listing", () => {
  it.each([0, 2_000])(
    "whose later page is asked for after a write, %i ms after the first",
    async (afterMs) => {
      const cached = await filled();
      const { cacher, clock } = cached;
      const request: CacheListRequest = { prefix: "", limit: 2, at: { match: "ANY" } };
      const first = await cacher.list(request);
      await clock.elapse(afterMs);
      await cached.write(["a", "y"]);
      const at = { match: "EXACT", revision: first.revision } as const;
      await cacher.list({ ...request, at, startAfter: first.next });
      const { came, held } = await heldEvents(cached, () => overwrite(cached, 100));
      expect(came).toBe(100);
      // History has the last ten and the one before them.
      expect(held.filter((i) => i < 89)).toEqual([]);
    },
  );

  it("that was asked for once, of whatever there is", async () => {
    const cached = await filled();
    await cached.cacher.list({ prefix: "", limit: 0, at: { match: "ANY" } });
    await cached.cacher.list({ prefix: "none", limit: 0, at: { match: "ANY" } });
    const { held } = await heldEvents(cached, () => overwrite(cached, 100));
    expect(held.filter((i) => i < 89)).toEqual([]);
  });
});
