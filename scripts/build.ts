/** Builds `dist/` for publishing: plain JavaScript with declarations, from an empty folder. */
import { spawnSync } from "node:child_process";
import { chmodSync, cpSync, rmSync } from "node:fs";
import { exit } from "node:process";

rmSync("dist", { recursive: true, force: true });
const { status } = spawnSync("tsc", ["--project", "tsconfig.build.json"], { stdio: "inherit" });
if (status !== 0) exit(status ?? 1);
// The status page, as it is.
const page = "server/admin/status/page";
cpSync(`src/${page}`, `dist/${page}`, { recursive: true });
chmodSync("dist/cli/main.js", 0o755);
