import { describe, expect, test } from "vitest";
import { StoredObject } from "../../../src/model/object.ts";
import { KeyVersions, Tombstone } from "../../../src/storage/memory/keyspace.ts";

/** Written at 2 and 4, deleted at 6, written again at 8. */
function versions(): KeyVersions {
  const all = new KeyVersions();
  all.add(object(2));
  all.add(object(4));
  all.add(new Tombstone(6));
  all.add(object(8));
  return all;
}

function object(revision: number): StoredObject {
  return new StoredObject("a", new Uint8Array(), revision, revision, 1, 0n);
}

function seen(all: KeyVersions): (number | undefined)[] {
  return [1, 2, 3, 4, 5, 6, 7, 8, 9].map((revision) => all.at(revision)?.modRevision);
}

describe("KeyVersions", () => {
  test("has the key's object of every revision", () => {
    const none = undefined;
    expect(seen(versions())).toEqual([none, 2, 2, 4, 4, none, none, 8, 8]);
    expect(versions().current?.modRevision).toBe(8);
  });

  test.each([
    [1, [2, 2, 4, 4]],
    [2, [2, 2, 4, 4]],
    [3, [2, 2, 4, 4]],
    [4, [undefined, undefined, 4, 4]],
    [5, [undefined, undefined, 4, 4]],
    [6, [undefined, undefined, undefined, undefined]],
    [8, [undefined, undefined, undefined, undefined]],
  ])("compacted at %d has no version that reads from there on can't see", (revision, early) => {
    const all = versions();
    expect(all.compact(revision)).toBe(false);
    expect(seen(all).slice(1, 5)).toEqual(early);
    expect(seen(all).slice(7)).toEqual([8, 8]);
  });

  test("is empty once its deletion is compacted", () => {
    const all = new KeyVersions();
    all.add(object(2));
    all.add(new Tombstone(3));
    expect(all.compact(2)).toBe(false);
    expect(all.compact(3)).toBe(true);
  });
});
