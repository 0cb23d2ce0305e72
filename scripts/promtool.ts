/**
 * Obtains promtool for the tests of the alerts and prints where it is: `node scripts/promtool.ts`.
 *
 * In this order: $PROMTOOL_BIN; promtool on PATH; the one fetched before, in .cache; Debian stable's package. With
 * `--optional` a missing promtool is no failure: the tests that need it are skipped.
 */
import { printPath } from "./binary-sources.ts";
import { CachedBinary } from "./cached-binary.ts";
import { unpackDebianPackages } from "./etcd/debian.ts";

export const promtool = new CachedBinary("promtool", ["--version"]);

if (import.meta.main) {
  await printPath(() =>
    promtool.path("Debian stable", (folder) => unpackDebianPackages(folder, ["promtool"])),
  );
  if (process.argv.includes("--optional")) process.exitCode = 0;
}
