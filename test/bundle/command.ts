import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { execPath } from "node:process";
import { fileURLToPath } from "node:url";

const checkout = fileURLToPath(new URL("../..", import.meta.url));
const folder = join(checkout, ".cache/bundles");
/** Those of tests that still run, while sources are changed. */
const keptBundles = 8;

/**
 * The path of the command `watch-fanout`, to be run with Node.js: the sources in one bundle with what they import, which
 * takes 0.3 s of CPU to start instead of 0.5 s. It is made when it is first asked for, and again when a source changes.
 */
export const main: string = made(join(folder, stateOfSources()));

function made(bundle: string): string {
  const path = join(bundle, "main.js");
  if (existsSync(path)) return path;
  mkdirSync(folder, { recursive: true });
  const unfinished = mkdtempSync(join(folder, "unfinished-"));
  const build = fileURLToPath(new URL("build.ts", import.meta.url));
  const args = ["--disable-warning=ExperimentalWarning", build, unfinished];
  const { status, stderr } = spawnSync(execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(`The command can't be bundled: ${stderr}`);
  try {
    renameSync(unfinished, bundle);
  } catch (error) {
    // Another process has made the same at the same time.
    rmSync(unfinished, { recursive: true });
    if (!existsSync(path)) throw error;
  }
  prune();
  return path;
}

/** Deletes all but the newest: each change of a source makes one. */
function prune(): void {
  const all = readdirSync(folder).map((name) => {
    const path = join(folder, name);
    // Another process may have deleted it.
    return { path, madeAt: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 };
  });
  const old = all.sort((one, other) => other.madeAt - one.madeAt).slice(keptBundles);
  for (const { path } of old) rmSync(path, { recursive: true, force: true });
}

/** Differs if a source, a dependency or the way of bundling does. */
function stateOfSources(): string {
  const sources = globSync("src/**/*.ts", { cwd: checkout }).sort();
  const hash = createHash("sha256");
  for (const file of [...sources, "package-lock.json", "test/bundle/build.ts"]) {
    hash.update(`${file}\0`).update(readFileSync(join(checkout, file)));
  }
  return hash.digest("hex").slice(0, 16);
}
