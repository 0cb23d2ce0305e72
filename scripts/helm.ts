/**
 * Obtains Helm for the tests of the chart and prints where it is: `node scripts/helm.ts`.
 *
 * In this order: $HELM_BIN; helm on PATH; the one built before, in .cache; built from its Go module, which takes some
 * minutes of CPU. The tests of the chart are skipped without it, so that `npm test` does not build it.
 */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { printPath } from "./binary-sources.ts";
import { CachedBinary } from "./cached-binary.ts";

const run = promisify(execFile);

/** Go verifies its checksum. */
const module = "helm.sh/helm/v3/cmd/helm@v3.21.4";

export const helm = new CachedBinary("helm", ["version", "--short"]);

if (import.meta.main) {
  await printPath(() =>
    helm.path(`go install ${module}`, async (folder) => {
      const env = { ...process.env, GOBIN: folder, CGO_ENABLED: "0" };
      await run("go", ["install", module], { env, timeout: 60 * 60_000 });
    }),
  );
}
