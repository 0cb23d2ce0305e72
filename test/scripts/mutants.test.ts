import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import {
  merged,
  patternOf,
  rowOf,
  scoresOf,
  testsOf,
  undetectedPlaces,
} from "../../scripts/mutants.ts";

const location = { start: { line: 1, column: 3 }, end: { line: 2, column: 5 } };

test("mutants are counted by folder, without those that are ignored or do not load", () => {
  const mutants = (
    ["Killed", "Timeout", "Survived", "NoCoverage", "Ignored", "RuntimeError"] as const
  ).map((status) => ({ mutatorName: "BlockStatement", status, location }));
  const [killed] = mutants;
  if (killed === undefined) throw new Error("There are mutants.");
  const scores = scoresOf({
    files: {
      "src/a/one.ts": { mutants },
      "src/a/two.ts": { mutants: [killed] },
      "src/a/b/three.ts": { mutants: [killed] },
    },
  });
  expect([...scores].map(([folder, score]) => rowOf(folder, score))).toEqual([
    "| src/a | 2 | 1 | 1 | 1 | 60.0 % |",
    "| src/a/b | 1 | 0 | 0 | 0 | 100.0 % |",
  ]);
});

test("the tests of a folder are in the folder of the same name, or in the nearest above", () => {
  expect(testsOf("src/reflector/history")).toBe("test/reflector/history");
  expect(testsOf("src/etcd-api/calls")).toBe("test/etcd-api");
  expect(testsOf("src/cacher/list/list-chunk.ts")).toBe("test/cacher/list");
  expect(existsSync(testsOf("src/cacher"))).toBe(true);
});

test("a folder is mutated with the folders in it, a file alone", () => {
  expect(patternOf("src/cacher")).toBe("src/cacher/**/*.ts");
  expect(patternOf("src/cacher/reads.ts")).toBe("src/cacher/reads.ts");
});

test("more tests judge what the first have not detected, at its places", () => {
  const mutants = (...all: readonly ("Killed" | "Survived" | "NoCoverage" | "Timeout")[]) => ({
    mutants: all.map((status, i) => ({
      mutatorName: "Any",
      replacement: `${i}`,
      status,
      location,
    })),
  });
  const first = {
    files: { "src/a/one.ts": mutants("Killed", "Survived", "NoCoverage", "Survived") },
  };
  expect(undetectedPlaces(first)).toEqual(["src/a/one.ts:1:2-2:4"]);
  // One that was detected stays so.
  const second = {
    files: { "src/a/one.ts": mutants("Survived", "Killed", "Timeout", "Survived") },
  };
  const both = merged(first, second);
  expect(both.files["src/a/one.ts"]?.mutants.map(({ status }) => status)).toEqual([
    "Killed",
    "Killed",
    "Timeout",
    "Survived",
  ]);
  expect(undetectedPlaces({ files: { "src/a/one.ts": mutants("Killed", "Timeout") } })).toEqual([]);
});
