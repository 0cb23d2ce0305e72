import { existsSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { isThorough } from "../thorough.ts";
import { entries } from "./entries.ts";
import { occurrences, requestedMutations } from "./mutate.ts";
import { runEntry } from "./run.ts";
import { withTable } from "./table.ts";

/** One of each kind: of the cache, of the library, of what reads etcd. */
const representatives = [
  "kubernetes-49992",
  ...(isThorough ? ["kubernetes-115658", "clientv3-fragment"] : []),
];

describe("The corpus", () => {
  test("has each bug once", () => {
    const ids = entries.map(({ id }) => id);
    expect(ids).toEqual([...new Set(ids)]);
    expect(ids.length).toBeGreaterThan(40);
  });

  test.each(entries)("$id can be planted in the code as it is now", ({ mutations }) => {
    expect(mutations.length).toBeGreaterThan(0);
    for (const { file, find, replace } of mutations) {
      expect(occurrences(readFileSync(file, "utf8"), find), `${file}: ${find}`).toBe(1);
      expect(replace).not.toBe(find);
    }
  });

  test.each(entries)("$id is caught by a test that exists, or by a seed", (entry) => {
    const { tests = [], seed } = entry;
    expect(tests.length + (seed === undefined ? 0 : 1)).toBeGreaterThan(0);
    for (const { file } of tests) expect(existsSync(file), file).toBe(true);
    if (entry.isWithstood === true) expect(seed).toBeDefined();
  });

  test("is in docs/guarantees.md: node scripts/corpus.ts --table writes it", () => {
    const page = readFileSync("docs/guarantees.md", "utf8");
    expect(withTable(page)).toBe(page);
  });

  test("limits the mutations of an entry to a folder on request", () => {
    const files = (corpus: string): string[] => requestedMutations(corpus).map(({ file }) => file);
    expect(files("etcd-15271")).toHaveLength(2);
    expect(files("etcd-15271,test/simulation/")).toEqual(["test/simulation/etcd-watch.ts"]);
    expect(() => files("none")).toThrow("no entry none");
  });
});

describe.skipIf(process.env["CORPUS"] !== undefined)("Planted for real", () => {
  test.each(representatives)("%s makes its tests fail", { timeout: 300_000 }, async (id) => {
    const entry = entries.find((one) => one.id === id);
    const attempts = entry === undefined ? [] : await runEntry(entry);
    expect(attempts.length).toBeGreaterThan(0);
    expect(attempts.filter(({ problem }) => problem !== undefined)).toEqual([]);
  });
});
