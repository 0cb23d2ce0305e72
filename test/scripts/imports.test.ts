import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { circlesIn, foldersOf, type ImportGraph, importsOf } from "../../scripts/imports.ts";

/** Writes the files into a new folder, and reads their imports from there. */
function importsIn(files: Readonly<Record<string, string>>): ImportGraph {
  const root = mkdtempSync(join(tmpdir(), "watch-fanout-imports-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [file, source] of Object.entries(files)) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), source);
  }
  return importsOf(root, ["**/*.ts"]);
}

describe("A circle of files is found", () => {
  test.each([
    ["values", 'import { b } from "./b.ts";'],
    ["types", 'import type { B } from "./b.ts";'],
    ["types beside values", 'import { type B, c } from "./b.ts";'],
    ["many names", 'import {\n  type B,\n  c,\n} from "./b.ts";'],
    ["a namespace", 'import * as b from "./b.ts";'],
    ["a type in place", 'export type A = import("./b.ts").B;'],
    ["a side effect", 'import "./b.ts";'],
    ["an import at run time", 'const b = await import("./b.ts");'],
    ["an export of values", 'export { b } from "./b.ts";'],
    ["an export of types", 'export type { B } from "./b.ts";'],
    ["an export of everything", 'export * from "./b.ts";'],
    ["a path by way of another folder", 'import { b } from "../x/b.ts";'],
  ])("by %s", (_, source) => {
    const files = importsIn({ "x/a.ts": source, "x/b.ts": 'import type { A } from "./a.ts";' });
    expect(circlesIn(files)).toEqual([["x/a.ts", "x/b.ts"]]);
  });

  test("of one that imports itself", () => {
    const files = importsIn({ "a.ts": 'export * from "./a.ts";' });
    expect(circlesIn(files)).toEqual([["a.ts"]]);
  });

  test("with what is in it, and not with what imports it or is imported by it", () => {
    const files = importsIn({
      "above.ts": 'import "./one.ts";',
      "one.ts": 'import "./two.ts";\nimport "./below.ts";',
      "two.ts": 'import "./x/three.ts";',
      "x/three.ts": 'import type { One } from "../one.ts";',
      "below.ts": 'import { readFileSync } from "node:fs";',
    });
    expect(circlesIn(files)).toEqual([["one.ts", "two.ts", "x/three.ts"]]);
  });

  test("beside others, each by itself, those that share a file as one", () => {
    const files = importsIn({
      "a.ts": 'import "./b.ts";\nimport "./d.ts";',
      "b.ts": 'import "./a.ts";\nimport "./c.ts";',
      "c.ts": 'import "./b.ts";',
      "d.ts": 'import "./e.ts";',
      "e.ts": 'import "./d.ts";',
    });
    expect(circlesIn(files)).toEqual([
      ["a.ts", "b.ts", "c.ts"],
      ["d.ts", "e.ts"],
    ]);
  });
});

test("Files that are imported in two ways are no circle", () => {
  const files = importsIn({
    "a.ts": 'import "./b.ts";\nimport "./c.ts";',
    "b.ts": 'import "./d.ts";',
    "c.ts": 'import "./b.ts";\nimport "./d.ts";',
    "d.ts": 'import "./missing.ts";\nimport "some-package";',
  });
  expect(circlesIn(files)).toEqual([]);
});

test("A circle of folders need not be one of files", () => {
  const files = importsIn({
    "x/a.ts": 'import "../y/b.ts";',
    "y/b.ts": "",
    "y/c.ts": 'import type { D } from "../x/d.ts";',
    "x/d.ts": "",
  });
  expect(circlesIn(files)).toEqual([]);
  expect(circlesIn(foldersOf(files))).toEqual([["x", "y"]]);
});
