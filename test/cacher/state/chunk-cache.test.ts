import { describe, expect, it } from "vitest";
import { ChunkCache, type ChunkCacheEntry, costOf } from "../../../src/cacher/state/chunk-cache.ts";

const mebibyte = 1024 * 1024;

/** A chunk of about so many MiB, whose owner is `among`. */
function entry(
  owner: Map<string, ChunkCacheEntry>,
  at: string,
  mebibytes: number,
): ChunkCacheEntry {
  return { cost: costOf(mebibytes * mebibyte), owner, at, isFresh: true };
}

describe("Cached chunks", () => {
  it("are bounded in bytes over all owners, their encodings included: the least recently used are evicted first", () => {
    const kept = new ChunkCache();
    const [one, other] = [new Map<string, ChunkCacheEntry>(), new Map<string, ChunkCacheEntry>()];
    // With its encoding, a chunk of 5 MiB takes 10 MiB, and the bound is 32 MiB.
    kept.touch(entry(one, "a", 5));
    kept.touch(entry(other, "a", 5));
    kept.touch(entry(one, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["a", "b"], ["a"]]);
    kept.touch(entry(other, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["b"], ["a", "b"]]);
  });

  it("are the most recently used, not the most recently made", () => {
    const kept = new ChunkCache();
    const among = new Map<string, ChunkCacheEntry>();
    const first = entry(among, "a", 5);
    kept.touch(first);
    kept.touch(entry(among, "b", 5));
    kept.touch(entry(among, "c", 5));
    kept.touch(first);
    kept.touch(entry(among, "d", 5));
    expect([...among.keys()]).toEqual(["a", "c", "d"]);
  });

  it("are evicted when no reader has used them for a while", () => {
    const kept = new ChunkCache();
    const among = new Map<string, ChunkCacheEntry>();
    const taken = entry(among, "a", 1);
    kept.touch(taken);
    kept.touch(entry(among, "b", 1));
    kept.expire();
    kept.touch(taken);
    kept.expire();
    expect([...among.keys()]).toEqual(["a"]);
    kept.expire();
    expect(among.size).toBe(0);
    // Their memory is no longer counted.
    for (const at of ["c", "d", "e"]) kept.touch(entry(among, at, 5));
    expect(among.size).toBe(3);
  });
});
