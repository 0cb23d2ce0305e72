/**
 * Packs the package as npm would publish it: `node scripts/pack.ts FILE.tgz`.
 *
 * It is built in a copy, since the `dist/` of the checkout may be in use, and without network.
 */
import { execFile } from "node:child_process";
import { copyFile, cp, mkdir, mkdtemp, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);
const checkout = join(import.meta.dirname, "..");

/** What the build reads and what is published, with some of what must not be published. */
const copied = [
  ...["package.json", "tsconfig.json", "tsconfig.build.json", "README.md", "LICENSE"],
  ...["src", "proto", "scripts", "docs", "vitest.config.ts"],
];

/**
 * Builds and packs a copy of the checkout within `folder`.
 *
 * @returns the path of the tarball
 * @throws Error with the output of npm if the build or the packing fails
 */
export async function packCopy(folder: string): Promise<string> {
  const copy = join(folder, "copy");
  for (const name of copied) {
    await cp(join(checkout, name), join(copy, name), { recursive: true });
  }
  await symlink(join(checkout, "node_modules"), join(copy, "node_modules"));
  await run("npm", ["pack", "--pack-destination", folder], {
    cwd: copy,
    env: isolatedEnvironment(folder),
  });
  const { version } = JSON.parse(await readFile(join(copy, "package.json"), "utf8"));
  return join(folder, `watch-fanout-${version}.tgz`);
}

/** The environment for npm and Node.js: none of the caller's settings, and no network. */
export function isolatedEnvironment(home: string): Record<string, string> {
  return {
    PATH: `${dirname(process.execPath)}${delimiter}${process.env["PATH"]}`,
    HOME: home,
    npm_config_cache: join(home, "cache"),
    npm_config_offline: "true",
    npm_config_update_notifier: "false",
  };
}

if (import.meta.main) {
  const [target] = process.argv.slice(2);
  if (target === undefined) throw new Error("Usage: node scripts/pack.ts FILE.tgz");
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-pack-"));
  try {
    await mkdir(dirname(target), { recursive: true });
    await copyFile(await packCopy(folder), target);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
