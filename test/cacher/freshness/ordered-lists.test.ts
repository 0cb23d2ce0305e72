import { expect, test } from "vitest";
import { systemClock } from "../../../src/base/clock.ts";
import { Turns } from "../../../src/base/turns.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { LimitedUpstreamReader } from "../../../src/cacher/freshness/upstream-reader.ts";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";

function readerOf(storage: MemoryStorage): LimitedUpstreamReader {
  return new LimitedUpstreamReader({
    ...{ name: "things", storage, limiter: new UpstreamLimiter(systemClock) },
    ...{ scheduler: new Turns(systemClock), check: (response) => response },
  });
}

const newest: CacheListRequest = {
  ...{ prefix: "", limit: 1, at: { match: "LINEARIZABLE" }, order: "MOD_REVISION_DESCENDING" },
};

test("A list in another order that only the store has is LIST_TOO_LARGE above 64 MiB, whatever is selected", async () => {
  const storage = new MemoryStorage({ clock: systemClock, maxStateBytes: 2 ** 30 });
  const reader = readerOf(storage);
  const value = Buffer.alloc(1024 * 1024 - 68);
  for (let i = 0; i < 64; i++) await storage.put({ key: `k-${10 + i}`, value });
  expect((await reader.list(newest)).items.map(({ key }) => key)).toEqual(["k-73"]);
  await storage.put({ key: "l", value: Buffer.of(1) });
  await expect(reader.list(newest)).rejects.toMatchObject({ reason: "LIST_TOO_LARGE" });
  const none = { ...newest, predicate: () => false };
  await expect(reader.list(none)).rejects.toMatchObject({ reason: "LIST_TOO_LARGE" });
  const some = { ...newest, interval: { from: "k-2", to: undefined } };
  expect((await reader.list(some)).items.map(({ key }) => key)).toEqual(["l"]);
  await storage.close();
});

test("A page after an object that the list does not have is refused, also if the store has it", async () => {
  const storage = new MemoryStorage({ clock: systemClock });
  const reader = readerOf(storage);
  for (const key of ["a", "b", "c"]) await storage.put({ key, value: Buffer.of() });
  const interval = { from: "b", to: undefined };
  for (const startAfter of ["a", "bb", ""]) {
    await expect(reader.list({ ...newest, interval, startAfter })).rejects.toMatchObject({
      ...{ reason: "INVALID_REQUEST", field: "page_token" },
    });
  }
  const { items } = await reader.list({ ...newest, interval, startAfter: "c" });
  expect(items.map(({ key }) => key)).toEqual(["b"]);
  await storage.close();
});
