/** Builds `dist/` for publishing: plain JavaScript with declarations, from an empty folder. */
import { spawnSync } from "node:child_process";
import { chmodSync, rmSync } from "node:fs";
import { exit } from "node:process";

rmSync("dist", { recursive: true, force: true });
const { status } = spawnSync("tsc", ["--project", "tsconfig.build.json"], { stdio: "inherit" });
if (status !== 0) exit(status ?? 1);
chmodSync("dist/cli/main.js", 0o755);
