/**
 * Installs what `npm run test:runtimes` runs the client with, from npm into .cache, and prints where: Node.js 22, Deno,
 * Bun and esbuild, in the versions of scripts/runtimes/package-lock.json. What can't be installed is skipped there.
 */
import { execFile } from "node:child_process";
import { copyFile, mkdir, mkdtemp, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { printPath } from "./binary-sources.ts";

const run = promisify(execFile);
const source = join(import.meta.dirname, "runtimes");
const cache = join(import.meta.dirname, "../.cache/runtimes");

/** The path of a runtime's command. It may be absent. */
export function runtimeCommand(name: string): string {
  return join(cache, "node_modules/.bin", name);
}

function lockIn(folder: string): Promise<string> {
  return readFile(join(folder, "package-lock.json"), "utf8").catch(() => "");
}

/** Installs into a folder of its own, which becomes the cache in one step. */
async function install(): Promise<string> {
  if ((await lockIn(cache)) === (await lockIn(source))) return cache;
  await mkdir(join(cache, ".."), { recursive: true });
  const work = await mkdtemp(`${cache}-`);
  try {
    for (const file of ["package.json", "package-lock.json"]) {
      await copyFile(join(source, file), join(work, file));
    }
    await run("npm", ["ci", "--prefix", work], { cwd: work, timeout: 5 * 60_000 });
    await rm(cache, { recursive: true, force: true });
    await rename(work, cache);
    return cache;
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  await printPath(install);
  process.exitCode = 0;
}
