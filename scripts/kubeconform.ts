/**
 * Obtains kubeconform and the schemas of Kubernetes' objects, for the tests of deploy/, and prints where they are:
 * `node scripts/kubeconform.ts`.
 *
 * kubeconform, in this order: $KUBECONFORM_BIN; on PATH; the one built before, in .cache; built from its Go module. The
 * schemas: those fetched before, in .cache; the wheel `kubernetes-validate` by pip, which has those of each version. The
 * tests are skipped without either, so that `npm test` needs neither Go nor Python.
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { printPath } from "./binary-sources.ts";
import { CachedBinary } from "./cached-binary.ts";
import { installWheel } from "./wheel.ts";

const run = promisify(execFile);

/** Go verifies its checksum. */
const module = "github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0";

const wheel = "kubernetes-validate==1.37.0";
const schemaCache = join(import.meta.dirname, "..", ".cache", "kubernetes-schemas");
/** Where the wheel has them. */
const schemaPath = join("kubernetes_validate", "kubernetes-json-schema");

/** The versions of Kubernetes that manifests are checked with: the oldest and the newest that they are for. */
export const kubernetesVersions = ["1.31.0", "1.37.0"] as const;

export const kubeconform = new CachedBinary("kubeconform", ["-v"]);

/** The folder with the schemas of a version, in which no object has further fields; undefined if it was not fetched. */
export function installedSchemas(version: string): string | undefined {
  const folder = folderOf(schemaCache, version);
  return existsSync(folder) ? folder : undefined;
}

function folderOf(cache: string, version: string): string {
  return join(cache, schemaPath, `v${version}-local-strict`);
}

/** Lets the schemas refer to each other as files: the wheel has them with the addresses of a web site. */
async function referToFiles(cache: string): Promise<void> {
  for (const version of kubernetesVersions) {
    const folder = folderOf(cache, version);
    for (const name of await readdir(folder)) {
      const file = join(folder, name);
      const { $id: _, ...schema } = JSON.parse(await readFile(file, "utf8"));
      const text = JSON.stringify(schema).replaceAll('"/api/_definitions', '"_definitions');
      await writeFile(file, text);
    }
  }
}

if (import.meta.main) {
  await printPath(() =>
    kubeconform.path(`go install ${module}`, async (folder) => {
      const env = { ...process.env, GOBIN: folder, CGO_ENABLED: "0" };
      await run("go", ["install", module], { env, timeout: 60 * 60_000 });
    }),
  );
  await printPath(async () => {
    const isMissing = kubernetesVersions.some((each) => installedSchemas(each) === undefined);
    if (isMissing) await installWheel(wheel, schemaCache, referToFiles);
    return join(schemaCache, schemaPath);
  });
}
