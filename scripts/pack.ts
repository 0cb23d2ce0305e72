/**
 * Packs both packages as npm would publish them: `node scripts/pack.ts FOLDER` writes
 * `watch-fanout.tgz` and `watch-fanout-client.tgz`.
 *
 * They are built in a copy, since the `dist/` of the checkout may be in use, and without network.
 */
import { execFile } from "node:child_process";
import { copyFile, cp, mkdir, mkdtemp, readFile, rename, rm, symlink } from "node:fs/promises";
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

/** The names of the packages: the service, with its library, and the client alone. */
export const packages = ["watch-fanout", "watch-fanout-client"] as const;
export type PackageName = (typeof packages)[number];

/**
 * Builds a copy of the checkout within `folder`, and packs it into `folder`, without versions in the names of the files.
 *
 * @throws Error with the output of npm if the build or the packing fails
 */
export async function packCopy(folder: string): Promise<void> {
  const copy = join(folder, "copy");
  for (const name of copied) {
    await cp(join(checkout, name), join(copy, name), { recursive: true });
  }
  await symlink(join(checkout, "node_modules"), join(copy, "node_modules"));
  const all = ["--workspaces", "--include-workspace-root"];
  await run("npm", ["pack", ...all, "--pack-destination", folder], {
    cwd: copy,
    env: isolatedEnvironment(folder),
  });
  const { version } = JSON.parse(await readFile(join(copy, "package.json"), "utf8"));
  for (const name of packages) {
    await rename(join(folder, `${name}-${version}.tgz`), join(folder, `${name}.tgz`));
  }
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
  if (target === undefined) throw new Error("Usage: node scripts/pack.ts FOLDER");
  const folder = await mkdtemp(join(tmpdir(), "watch-fanout-pack-"));
  try {
    await packCopy(folder);
    await mkdir(target, { recursive: true });
    for (const name of packages) {
      await copyFile(join(folder, `${name}.tgz`), join(target, `${name}.tgz`));
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
