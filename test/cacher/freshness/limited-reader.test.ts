import { expect, it } from "vitest";
import { Turns } from "../../../src/base/turns.ts";
import { UpstreamLimiter } from "../../../src/cacher/freshness/upstream-limiter.ts";
import { LimitedUpstreamReader } from "../../../src/cacher/freshness/upstream-reader.ts";
import type { Predicate } from "../../../src/cacher/request/selection.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import { MemoryStorage } from "../../../src/storage/memory/memory-storage.ts";
import type { ListResult, RevisionRequirement } from "../../../src/storage/storage.ts";
import { FakeClock } from "../../fake-clock.ts";
import fc from "../../property.ts";

/** A storage that answers with at most so many objects, regardless of the limit requested. */
async function storageOf(keys: readonly string[], perResponse: number): Promise<MemoryStorage> {
  const storage = new MemoryStorage({ clock: new FakeClock() });
  for (const key of keys) await storage.put({ key, value: Buffer.alloc(100) });
  const list = storage.list.bind(storage);
  storage.list = (request) => {
    expect(request).not.toHaveProperty("predicate");
    const limit = request.limit === 0 ? perResponse : Math.min(perResponse, request.limit);
    return list({ ...request, limit });
  };
  return storage;
}

it("Pages from the storage hold all matching objects, once and in order, within their bounds", async () => {
  const chosen = fc.uniqueArray(fc.integer({ min: 0, max: 99 }), { maxLength: 40 });
  const sizes = fc.record({
    limit: fc.integer({ min: 0, max: 5 }),
    maxBytes: fc.constantFrom(0, 1, 500),
    perResponse: fc.integer({ min: 1, max: 10 }),
  });
  await fc.assert(
    fc.asyncProperty(chosen, chosen, sizes, async (there, picked, sizes) => {
      const { limit, maxBytes, perResponse } = sizes;
      const keys = there.map((i) => `k${10 + i}`).sort();
      const clock = new FakeClock();
      const reads = new LimitedUpstreamReader({
        ...{ name: "things", storage: await storageOf(keys, perResponse) },
        ...{ limiter: new UpstreamLimiter(clock), scheduler: new Turns(clock) },
        check: (response) => response,
      });
      const predicate: Predicate = ({ key }) => picked.includes(Number(key.slice(1)) - 10);
      const seen: string[] = [];
      let page: ListResult | undefined;
      let at: RevisionRequirement = { match: "ANY" };
      do {
        const startAfter = page?.next;
        page = await reads.list({ prefix: "k", startAfter, limit, maxBytes, at, predicate });
        at = { match: "EXACT", revision: page.revision };
        expect(page.items.length).toBeLessThanOrEqual(limit === 0 ? Infinity : limit);
        const bytes = page.items.reduce((sum, item) => sum + estimatedBytes(item), 0);
        if (maxBytes > 0 && page.items.length > 1) expect(bytes).toBeLessThanOrEqual(maxBytes);
        expect(page.remaining).toBe(page.next === undefined ? 0 : undefined);
        seen.push(...page.items.map(({ key }) => key));
      } while (page.next !== undefined);
      expect(seen).toEqual(keys.filter((key) => picked.includes(Number(key.slice(1)) - 10)));
    }),
    { numRuns: 100 },
  );
});
