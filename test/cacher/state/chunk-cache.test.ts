import { describe, expect, it } from "vitest";
import { costOf, type KeptPiece, KeptPieces } from "../../../src/cacher/state/chunk-cache.ts";

const mebibyte = 1024 * 1024;

/** A piece of about so many MiB, of the snapshot that keeps its pieces in `among`. */
function piece(among: Map<string, KeptPiece>, at: string, mebibytes: number): KeptPiece {
  return { cost: costOf(mebibytes * mebibyte), among, at, isFresh: true };
}

describe("The pieces that are kept", () => {
  it("are bounded in bytes over all snapshots, their frames included: the oldest go first", () => {
    const kept = new KeptPieces();
    const [one, other] = [new Map<string, KeptPiece>(), new Map<string, KeptPiece>()];
    // With its frames a piece of 5 MiB is 10, and 32 are kept.
    kept.touch(piece(one, "a", 5));
    kept.touch(piece(other, "a", 5));
    kept.touch(piece(one, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["a", "b"], ["a"]]);
    kept.touch(piece(other, "b", 5));
    expect([[...one.keys()], [...other.keys()]]).toEqual([["b"], ["a", "b"]]);
  });

  it("are those that were taken last, not those that were made last", () => {
    const kept = new KeptPieces();
    const among = new Map<string, KeptPiece>();
    const first = piece(among, "a", 5);
    kept.touch(first);
    kept.touch(piece(among, "b", 5));
    kept.touch(piece(among, "c", 5));
    kept.touch(first);
    kept.touch(piece(among, "d", 5));
    expect([...among.keys()]).toEqual(["a", "c", "d"]);
  });

  it("are let go when nobody has taken them for a while", () => {
    const kept = new KeptPieces();
    const among = new Map<string, KeptPiece>();
    const taken = piece(among, "a", 1);
    kept.touch(taken);
    kept.touch(piece(among, "b", 1));
    kept.expire();
    kept.touch(taken);
    kept.expire();
    expect([...among.keys()]).toEqual(["a"]);
    kept.expire();
    expect(among.size).toBe(0);
    // And what they cost is free again.
    for (const at of ["c", "d", "e"]) kept.touch(piece(among, at, 5));
    expect(among.size).toBe(3);
  });
});
