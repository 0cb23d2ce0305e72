import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { importsOf } from "../scripts/imports.ts";

/**
 * Modules in which a thorough run changes something else than how often a test repeats what it does: the pace of writers and
 * readers, whether files are synced, and the rows on a file, which the script selects by their names.
 */
const others = ["contract/backends.ts", "faults/world.ts", "storage/memory/store-on-file.ts"];

const imports = importsOf("test", ["**/*.ts"]);

function isThorough(file: string): boolean {
  const source = readFileSync(`test/${file}`, "utf8");
  return imports.get(file)?.has("thorough.ts") || /\bcostlyRuns\(/.test(source);
}

/** Whether it repeats something more often in a thorough run, itself or by what it imports. */
function repeats(file: string, seen: Set<string> = new Set(["property.ts", ...others])): boolean {
  // What a test has as a text is an import of no file.
  if (seen.has(file) || !imports.has(file)) return false;
  seen.add(file);
  return isThorough(file) || [...(imports.get(file) ?? [])].some((other) => repeats(other, seen));
}

test("`npm run test:thorough` runs each test that repeats something more often in such a run.", () => {
  const { scripts } = JSON.parse(readFileSync("package.json", "utf8"));
  const [, selection = ""] =
    /\$\((grep .+?--include=\*[.]test[.]ts)\)/.exec(scripts["test:thorough"]) ?? [];
  const selected = execFileSync("sh", ["-c", selection], { encoding: "utf8" }).split("\n");
  const repeating = [...imports.keys()].filter(
    (file) => file.endsWith(".test.ts") && repeats(file),
  );
  expect(repeating).toContain("cacher/etcd-conformance.test.ts");
  expect(repeating.filter((file) => !selected.includes(`test/${file}`))).toEqual([]);
});
