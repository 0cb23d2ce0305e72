import { describe, expect, test } from "vitest";
import { revisionTooOld, upstreamUnavailable } from "../../src/errors.ts";
import { oldestWithin } from "../../src/reflector/history-reach.ts";
import { ScriptedStorage } from "./scripted-storage.ts";

const { signal } = new AbortController();

/** Where to begin for 1,000 events from revision 1 to 10,001, and how many counts that took. */
async function reach(count: (revision: number) => number): Promise<[at: number, counts: number]> {
  let counts = 0;
  const storage = Object.assign(new ScriptedStorage(), {
    count: async (_prefix: string, revision: number) => {
      counts++;
      return count(revision);
    },
  });
  return [await oldestWithin(1000, { storage, prefix: "" }, 1, 10_001, signal), counts];
}

describe("History is filled from", () => {
  test("as far back as asked where no more was made since than it holds", async () => {
    expect(await reach((revision) => 50_000 + revision / 11)).toEqual([1, 2]);
  });

  test("as far back as asked where the store holds no more than that", async () => {
    expect(await reach(() => 900)).toEqual([1, 1]);
  });

  test("later where revisions made many objects each, with few questions", async () => {
    const [at, counts] = await reach((revision) => revision * 500);
    // Two revisions of 500 would fit.
    expect(at).toBeGreaterThan(9600);
    expect(at).toBeLessThanOrEqual(10_001);
    expect(counts).toBeLessThan(10);
  });

  test("after what was made in bulk, where little came later", async () => {
    const [at] = await reach((revision) => Math.min(revision, 5000) * 500);
    expect(at).toBeGreaterThanOrEqual(4998);
    expect(at).toBeLessThan(5000 + 10_000 / 32);
  });

  test("the oldest revision that is not compacted", async () => {
    const compacted = (revision: number): number => {
      if (revision < 7000) throw revisionTooOld(revision, 7000);
      return 5000;
    };
    expect(await reach(compacted)).toEqual([7000, 3]);
  });

  test("later than that where too much came since", async () => {
    const [at] = await reach((revision) => {
      if (revision < 7000) throw revisionTooOld(revision, 7000);
      return revision < 8000 ? 5000 : 10_000;
    });
    expect(at).toBeGreaterThanOrEqual(8000);
    expect(at).toBeLessThan(8000 + 10_000 / 32);
  });

  test("as far back as asked where what is kept is not told: who lists there finds out", async () => {
    const compacted = (revision: number): number => {
      if (revision < 7000) throw revisionTooOld(revision, undefined);
      return 5000;
    };
    expect(await reach(compacted)).toEqual([1, 2]);
  });

  test("as far back as asked where the storage does not count", async () => {
    const storage = new ScriptedStorage();
    expect(await oldestWithin(1000, { storage, prefix: "" }, 1, 10_001, signal)).toBe(1);
    expect(storage.calls).toEqual([]);
  });

  test("nowhere if the storage fails", async () => {
    const failing = reach(() => {
      throw upstreamUnavailable("It is away.");
    });
    await expect(failing).rejects.toMatchObject({ reason: "UPSTREAM_UNAVAILABLE" });
  });
});
