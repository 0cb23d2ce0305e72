import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { rowOf, scoresOf, testsOf } from "../../scripts/mutants.ts";

const location = { start: { line: 1 } };

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
  expect(testsOf("src/etcd-api/watch")).toBe("test/etcd-api");
  expect(existsSync(testsOf("src/cacher"))).toBe(true);
});
