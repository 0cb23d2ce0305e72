/**
 * Obtains promtool for the tests of the alerts and prints where it is: `node scripts/promtool.ts`.
 *
 * In this order: $PROMTOOL_BIN; promtool on PATH; the one fetched before, in .cache; Debian stable's package. With
 * `--optional` a missing promtool is no failure: the tests that need it are skipped.
 */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type BinarySource, folderOnPath, fromFirstSource, printPath } from "./binary-sources.ts";
import { unpackDebianPackages } from "./debian.ts";

const run = promisify(execFile);

const name = "promtool";
const cache = join(import.meta.dirname, "..", ".cache", name);

const installed: readonly BinarySource<string>[] = [
  ["PROMTOOL_BIN", () => running(process.env["PROMTOOL_BIN"] || undefined)],
  [
    "PATH",
    async () => running(await folderOnPath(name).then((folder) => folder && join(folder, name))),
  ],
  ["the cache", () => running(join(cache, name))],
];

/** The path of a promtool on this machine; undefined if it has no promtool. Downloads nothing. */
export function installedPromtool(): Promise<string | undefined> {
  return fromFirstSource(installed, "").catch(() => undefined);
}

/** @throws Error if it is absent or does not run here */
async function running(path: string | undefined): Promise<string> {
  if (path === undefined) throw new Error(`no ${name}`);
  await run(path, ["--version"], { timeout: 20_000 });
  return path;
}

/** Unpacks into a folder of its own, tries what is there, and moves it into the cache in one step. */
async function fetched(): Promise<string> {
  await mkdir(join(cache, ".."), { recursive: true });
  const work = await mkdtemp(`${cache}-`);
  try {
    await unpackDebianPackages(work, [name]);
    await running(join(work, name));
    await rm(cache, { recursive: true, force: true });
    await rename(work, cache);
    return join(cache, name);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  await printPath(() =>
    fromFirstSource(
      [...installed, ["Debian stable", fetched]],
      "There is no promtool. Set PROMTOOL_BIN to one.",
    ),
  );
  if (process.argv.includes("--optional")) process.exitCode = 0;
}
