/**
 * Builds a package for publishing, as plain JavaScript with declarations, from an empty folder: `node scripts/build.ts`
 * the service into `dist/`, `node scripts/build.ts client` the client into `src/client/dist/`.
 */
import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { argv, chdir, exit } from "node:process";
import { makeLivePage } from "./live-page.ts";

chdir(join(import.meta.dirname, ".."));

/** Compiles what the project includes, and all modules that it imports. */
function compile(project: string, into: string): void {
  rmSync(into, { recursive: true, force: true });
  const { status } = spawnSync("tsc", ["--project", project], { stdio: "inherit" });
  if (status !== 0) exit(status ?? 1);
}

if (argv[2] === "client") {
  compile("src/client/tsconfig.build.json", "src/client/dist");
  copyFileSync("LICENSE", "src/client/LICENSE");
} else {
  compile("tsconfig.build.json", "dist");
  // The status page, as it is.
  const page = "server/admin/status/page";
  cpSync(`src/${page}`, `dist/${page}`, { recursive: true });
  await makeLivePage();
  for (const folder of ["page", "build"].map((name) => `server/admin/live/${name}`)) {
    cpSync(`src/${folder}`, `dist/${folder}`, { recursive: true });
  }
  chmodSync("dist/cli/main.js", 0o755);
}
