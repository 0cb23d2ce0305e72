#!/usr/bin/env node
// Nothing else is imported before the version is checked: an older Node.js would end with a SyntaxError of some module.
import { readFileSync } from "node:fs";
import process from "node:process";

const manifest = new URL("../../package.json", import.meta.url);
const { engines } = JSON.parse(readFileSync(manifest, "utf8"));
const needed: string = engines.node;
const { node } = process.versions;

if (needed.split(" || ").some((range) => isIn(node, range))) {
  void import("./program.ts");
} else {
  process.stderr.write(
    `watch-fanout needs Node.js ${needed}, and ${process.execPath} is ${node}.\n`,
  );
  process.exitCode = 1;
}

/** Whether a version is in a range, which is `>=` or `^` and a version. */
function isIn(version: string, range: string): boolean {
  const least = range.replace(/^(>=|\^)/, "");
  const isMajor = Number.parseInt(version, 10) === Number.parseInt(least, 10);
  return !isOlder(version, least) && (isMajor || !range.startsWith("^"));
}

/** Whether a version, as in 22.15.0, is older than another one. */
function isOlder(version: string, other: string): boolean {
  const numbers = version.split(".").map(Number);
  for (const [i, number] of other.split(".").map(Number).entries()) {
    const own = numbers[i] ?? 0;
    if (own !== number) return own < number;
  }
  return false;
}
