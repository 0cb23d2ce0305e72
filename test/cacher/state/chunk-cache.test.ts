import { describe, expect, it } from "vitest";
import { ChunkCache, type ChunkCacheEntry, costOf } from "../../../src/cacher/state/chunk-cache.ts";

const mebibyte = 1024 * 1024;

/** A piece of about so many MiB, of the snapshot that keeps its pieces in `among`. */
function entry(
  owner: Map<string, ChunkCacheEntry>,
  at: string,
  mebibytes: number,
): ChunkCacheEntry {
  return { cost: costOf(mebibytes * mebibyte), owner, at, isFresh: true };
}

describe("The pieces that are kept", () => {
  it("are bounded in bytes over all snapshots, their frames included: the oldest go first", () => {
    const kept = new ChunkCache();
    const [one, other] = [new Map<string, ChunkCacheEntry>(), new Map<string, ChunkCacheEntry>()];
    // With its frames a piece of 5 MiB is 10, and 32 are kept.
    kept.touch(entry(one, "a", 5));
    kept.touch(entry(other, "a", 5));
    kept.touch(entry(one, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["a", "b"], ["a"]]);
    kept.touch(entry(other, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["b"], ["a", "b"]]);
  });

  it("are those that were taken last, not those that were made last", () => {
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

  it("are let go when nobody has taken them for a while", () => {
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
    // And what they cost is free again.
    for (const at of ["c", "d", "e"]) kept.touch(entry(among, at, 5));
    expect(among.size).toBe(3);
  });
});
