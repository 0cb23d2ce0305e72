import { describe, expect, it } from "vitest";
import type { ListChunk } from "../../../src/cacher/list/list-chunk.ts";
import { PageBuilder } from "../../../src/cacher/list/page-builder.ts";
import type { CacheListRequest } from "../../../src/cacher/request/request.ts";
import { estimatedBytes } from "../../../src/model/object.ts";
import { object } from "../objects.ts";

/** Three chunks of three objects of equal size, `a0` to `c2`; three objects more were examined for each. */
const chunks: readonly ListChunk[] = ["a", "b", "c"].map((name, i) => {
  const items = [0, 1, 2].map((at) => object(`${name}${at}`, 1));
  const bytes = items.reduce((sum, item) => sum + estimatedBytes(item), 0);
  const last = i === 2 ? undefined : `${name}2`;
  return { items, estimatedBytes: bytes, scanned: 6, last, batch: undefined };
});
const size = estimatedBytes(object("a0", 1));

/** Adds the chunks until the page is full. */
function fill(request: Partial<CacheListRequest>, added: readonly ListChunk[] = chunks) {
  const page = new PageBuilder({ prefix: "", limit: 0, at: { match: "ANY" }, ...request });
  const fitting = added.findIndex((chunk) => !page.add(chunk));
  const { items, chunks: parts = [] } = page.finish(7, undefined);
  return { page, fitting, keys: items.map(({ key }) => key).join(" "), parts };
}

describe("A page", () => {
  it("without a bound has all chunks, as they are", () => {
    const { page, fitting, keys, parts } = fill({});
    expect([fitting, keys]).toEqual([-1, "a0 a1 a2 b0 b1 b2 c0 c1 c2"]);
    expect([page.size, page.scanned, page.next]).toEqual([9, 18, undefined]);
    expect(parts.map((part, i) => part === chunks[i]?.items)).toEqual([true, true, true]);
    expect(page.finish(7, 3)).toMatchObject({ revision: 7, next: undefined, remaining: 3 });
  });

  it.each([
    ["2 objects", { limit: 2 }, 0, "a0 a1", "a1"],
    ["3 objects: the first chunk", { limit: 3 }, 1, "a0 a1 a2", "a2"],
    ["4 objects", { limit: 4 }, 1, "a0 a1 a2 b0", "b0"],
    ["all objects", { limit: 9 }, -1, "a0 a1 a2 b0 b1 b2 c0 c1 c2", undefined],
    // Pages without a limit end with a chunk, so that they share its encoding.
    ["the bytes of a chunk", { maxBytes: 3 * size }, 1, "a0 a1 a2", "a2"],
    ["the bytes of 5 objects", { maxBytes: 5 * size }, 1, "a0 a1 a2", "a2"],
    ["the bytes of two chunks", { maxBytes: 6 * size }, 2, "a0 a1 a2 b0 b1 b2", "b2"],
    // Unless it is the first one.
    ["the bytes of 2 objects", { maxBytes: 2 * size }, 0, "a0 a1", "a1"],
    ["hardly the bytes of 2 objects", { maxBytes: 2 * size - 1 }, 0, "a0", "a0"],
    ["less than an object", { maxBytes: 1 }, 0, "a0", "a0"],
    // With both bounds, the one that is reached first.
    ["the bytes of 4 of 8 objects", { limit: 8, maxBytes: 4 * size }, 1, "a0 a1 a2 b0", "b0"],
    ["the bytes of a chunk of 8", { limit: 8, maxBytes: 3 * size }, 1, "a0 a1 a2", "a2"],
    ["4 objects of the bytes of 8", { limit: 4, maxBytes: 8 * size }, 1, "a0 a1 a2 b0", "b0"],
  ])("ends at its bound: %s", (_, request, fitting, keys, next) => {
    const filled = fill(request);
    expect([filled.fitting, filled.keys, filled.page.next]).toEqual([fitting, keys, next]);
    expect(filled.page.size).toBe(keys.split(" ").length);
  });

  it("counts what it has of a chunk in its bytes", () => {
    const page = new PageBuilder({
      ...{ prefix: "", limit: 5, maxBytes: 4 * size, at: { match: "ANY" } },
    });
    expect(chunks.slice(0, 2).map((chunk) => page.add(chunk))).toEqual([true, false]);
    expect(page.finish(7, 0).items.length).toBe(4);
  });

  it("ends at its bound also within a chunk that has more than those before", () => {
    const [first, rest] = [chunks[0]?.items.slice(0, 1) ?? [], chunks[1]?.items ?? []];
    const added = [first, rest].map((items) => ({
      ...{ items, estimatedBytes: items.length * size, scanned: items.length, last: "z" },
      batch: undefined,
    }));
    expect(fill({ limit: 2 }, added).keys).toBe("a0 b0");
  });

  it("has no empty parts, and begins where the one before has ended", () => {
    const none = { items: [], estimatedBytes: 0, scanned: 10, last: "m", batch: undefined };
    const { page, parts } = fill({ startAfter: "k" }, []);
    expect([page.next, parts]).toEqual(["k", []]);
    const filled = fill({}, [none]);
    expect([filled.page.next, filled.page.scanned, filled.parts]).toEqual(["m", 10, []]);
  });
});
