/**
 * Obtains grpcurl for the test of the commands that docs/getting-started.md shows, and prints where it is:
 * `node scripts/grpcurl.ts`.
 *
 * In this order: $GRPCURL_BIN; grpcurl on PATH; the one built before, in .cache; `go install`. With `--optional` a
 * missing grpcurl is no failure: that test is skipped.
 */
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { printPath } from "./binary-sources.ts";
import { CachedBinary } from "./cached-binary.ts";

const version = "v1.9.3";

export const grpcurl = new CachedBinary("grpcurl", ["-version"]);

if (import.meta.main) {
  await printPath(() => grpcurl.path("go install", build));
  if (process.argv.includes("--optional")) process.exitCode = 0;
}

/** Builds it from its sources, whose hashes Go compares with those of its checksum database. */
async function build(folder: string): Promise<void> {
  const module = `github.com/fullstorydev/grpcurl/cmd/grpcurl@${version}`;
  // The modules stay in a folder of the build, which is deleted with it.
  const env = { ...process.env, GOBIN: folder, GOPATH: join(folder, "go"), GOFLAGS: "-modcacherw" };
  await promisify(execFile)("go", ["install", module], { env, timeout: 240_000 });
}
