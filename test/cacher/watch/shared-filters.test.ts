import { describe, expect, it } from "vitest";
import { WatchFanoutError } from "../../../src/base/errors.ts";
import { ObjectAttributes } from "../../../src/cacher/request/object-attributes.ts";
import type { CacheWatchRequest } from "../../../src/cacher/request/request.ts";
import { SharedFilters } from "../../../src/cacher/watch/shared-filters.ts";
import { AttributeReader } from "../../../src/codec/attribute-reader.ts";
import { JsonCodec } from "../../../src/codec/json-codec.ts";
import { maxSelectorLength } from "../../../src/selector/selector-error.ts";
import { FakeClock } from "../../fake-clock.ts";
import { CachedStore, silent } from "../cached-store.ts";

const codec = new JsonCodec({ fields: ["status.phase"] });
const attribution = new ObjectAttributes(new AttributeReader(codec, new FakeClock(), silent));

function request(
  scope: CacheWatchRequest["scope"],
  labels: string = "",
  more: Partial<CacheWatchRequest> = {},
): CacheWatchRequest {
  const selection = attribution.select(labels, "");
  return { scope, afterRevision: undefined, withPrevious: false, selection, ...more };
}

describe("The filters of watches", () => {
  it("are one for equal requests, also if they are spelled differently", () => {
    const shared = new SharedFilters();
    const filters = ["a=b,c", "c,a==b", " c , a in (b)"].map((labels) =>
      shared.acquire(request({ prefix: "p" }, labels)),
    );
    expect(new Set(filters).size).toBe(1);
    expect(shared.filters).toBe(1);
  });

  it("share one selection for equal requirements", () => {
    const shared = new SharedFilters();
    const filters = Array.from({ length: 100 }, (_, i) =>
      shared.acquire(request({ key: `k${i}` }, "a=b")),
    );
    expect(new Set(filters.map(({ selection }) => selection)).size).toBe(1);
    expect([shared.filters, shared.selections]).toEqual([100, 1]);
  });

  it("differ if anything in the request differs", () => {
    const shared = new SharedFilters();
    const asked = [
      request({ prefix: "p" }),
      request({ key: "p" }),
      request({ prefix: "p" }, "a"),
      request({ prefix: "p" }, "", { withPrevious: true }),
      request({ prefix: "p" }, "", { predicate: () => true }),
      request({ prefix: "p" }, "", { predicate: () => true }),
    ].map((each) => shared.acquire(each));
    expect(new Set(asked).size).toBe(asked.length);
  });

  it("are kept until the last holder releases them", () => {
    const shared = new SharedFilters();
    const filter = shared.acquire(request({ prefix: "p" }, "a=b"));
    shared.acquire(request({ prefix: "p" }, "a=b"));
    const other = shared.acquire(request({ prefix: "q" }, "a=b"));
    shared.release(filter);
    expect([shared.filters, shared.selections]).toEqual([2, 1]);
    shared.release(filter);
    expect([shared.filters, shared.selections]).toEqual([1, 1]);
    shared.release(other);
    expect([shared.filters, shared.selections]).toEqual([0, 0]);
    expect(shared.acquire(request({ prefix: "p" }, "a=b"))).not.toBe(filter);
  });

  it("have a short identity, also for a long request", () => {
    const long = `a in (${Array.from({ length: 9_000 }, (_, i) => `v${i}`).join(",")})`;
    expect(long.length).toBeLessThan(maxSelectorLength);
    const shared = new SharedFilters();
    const filters = [
      shared.acquire(request({ prefix: "p".repeat(1_000_000) })),
      shared.acquire(request({ prefix: "p".repeat(1_000_001) })),
      shared.acquire(request({ prefix: "" }, long)),
      shared.acquire(request({ prefix: "" }, long.replace("v1,", "w1,"))),
    ];
    for (const { identity } of filters) expect(identity.length).toBeLessThan(150);
    expect(new Set(filters.map(({ identity }) => identity)).size).toBe(filters.length);
  });
});

describe("The watches of a Cacher", () => {
  it("release their filter at any kind of end", async () => {
    const { cacher } = await CachedStore.ready();
    const watch = () => cacher.watch(request({ prefix: "p" }));
    const [closed, ended] = [watch(), watch()];
    expect(cacher.stats().filters).toBe(1);
    closed.close();
    closed.close();
    expect(cacher.stats().filters).toBe(1);
    ended.fail(new WatchFanoutError("INTERNAL", "A fault."));
    expect(cacher.stats().filters).toBe(0);
    cacher.drain();
    watch();
    expect(cacher.stats().filters).toBe(0);
  });

  it("are not kept after their end, even if their buffer is not read", async () => {
    const { cacher, clock } = await CachedStore.ready();
    const stream = cacher.watch(request({ prefix: "p" }));
    await clock.settle();
    expect(cacher.stats().buffers.batches).toBe(1);
    stream.fail(new WatchFanoutError("INTERNAL", "A fault."));
    expect(stream.buffer.length).toBe(1);
    expect(cacher.stats().buffers.batches).toBe(0);
  });
});
