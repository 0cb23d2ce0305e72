import { setImmediate as nextTurn } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { describe, expect, it } from "vitest";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import type { WatchEvent } from "../../../src/model/event.ts";
import { CachedStore } from "../cached-store.ts";

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

/** The events received while `act` runs that are still referenced afterwards. */
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
  // A weak reference that was made or read in this turn keeps its target alive until the next turn.
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

/** So many changes of one object, all but the last of which are needed by the event window only. */
async function overwrite(cached: CachedStore, times: number): Promise<void> {
  for (let i = 0; i < times; i++) await cached.write(["z", `${i}`]);
  await cached.store.compact((await cached.store.currentRevision()) - 1);
}

describe("Events dropped from the event window are not held by a list", () => {
  it.each([0, 2_000])(
    "whose next page is requested after a write, %i ms after the first",
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
      // The event window holds the last ten, and the node before them.
      expect(held.filter((i) => i < 89)).toEqual([]);
    },
  );

  it("that was requested once, with any selection", async () => {
    const cached = await filled();
    await cached.cacher.list({ prefix: "", limit: 0, at: { match: "ANY" } });
    await cached.cacher.list({ prefix: "none", limit: 0, at: { match: "ANY" } });
    const { held } = await heldEvents(cached, () => overwrite(cached, 100));
    expect(held.filter((i) => i < 89)).toEqual([]);
  });
});
