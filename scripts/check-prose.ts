/**
 * Finds idioms that are not plain technical English in comments, strings and documents: `node scripts/check-prose.ts`.
 * The rules are in prose/rules.ts.
 *
 * Arguments are files, or patterns of files, in place of all. With `--count` it prints how many findings each rule and
 * each folder has, in place of the findings.
 */
import { globSync, readFileSync } from "node:fs";
import { argv, stdout } from "node:process";
import { findingsIn, type ProseFinding } from "./prose/check.ts";

const checked = [
  "{src,test,bench,scripts,examples}/**/*.ts",
  "proto/watchfanout/**/*.proto",
  "{docs,deploy,.github}/**/*.md",
  "*.{md,ts}",
];

/** Generated from elsewhere, or examples of what is found. */
const unchecked = ["src/wire/generated/**", "scripts/prose/rules.ts", "test/scripts/prose.test.ts"];

const counts = argv.includes("--count");
const named = argv.slice(2).filter((argument) => !argument.startsWith("--"));
const paths = globSync(named.length > 0 ? named : checked, { exclude: unchecked }).sort();
const findings = paths.flatMap((path) =>
  findingsIn(path, readFileSync(path, "utf8")).map((finding) => ({ path, ...finding })),
);

if (counts) {
  printCounts("rule", ({ rule }) => rule.name);
  printCounts("folder", ({ path }) => folderOf(path));
} else {
  for (const { path, line, column, text, rule } of findings) {
    stdout.write(`${path}:${line}:${column}: "${text}": write ${rule.instead}\n`);
  }
}
stdout.write(`${findings.length} findings in ${paths.length} files\n`);
if (findings.length > 0) process.exitCode = 1;

/** Prints a table of how many findings have each key, the most first. */
function printCounts(
  title: string,
  keyOf: (finding: ProseFinding & { readonly path: string }) => string,
): void {
  const groups = Object.entries(Object.groupBy(findings, keyOf));
  const rows = groups.map(([key, group]) => [key, group?.length ?? 0] as const);
  stdout.write(`findings  ${title}\n`);
  for (const [key, count] of rows.sort(([, a], [, b]) => b - a)) {
    stdout.write(`${String(count).padStart(8)}  ${key}\n`);
  }
  stdout.write("\n");
}

/** `src/cacher` and so on, `test` as a whole. */
function folderOf(path: string): string {
  const [first = "", second = ""] = path.split("/");
  if (!path.includes("/")) return "(top)";
  return first === "src" && path.split("/").length > 2 ? `${first}/${second}` : first;
}
