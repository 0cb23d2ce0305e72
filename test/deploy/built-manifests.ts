import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { promisify } from "node:util";
import { parseAllDocuments } from "yaml";
import type { Config } from "../../src/config/config.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { certificates } from "../config/sources.ts";

const execute = promisify(execFile);

/** An object of Kubernetes, as much of it as the tests look at. */
export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly labels?: Labels };
  // biome-ignore lint/suspicious/noExplicitAny: each kind has another one.
  readonly spec?: any;
  readonly data?: Readonly<Record<string, string>>;
}

export type Labels = Readonly<Record<string, string>>;

/** The folders that `kubectl apply --kustomize` takes. */
export const kustomizations: readonly string[] = [
  "deploy/kubernetes",
  ...globSync("deploy/kubernetes/overlays/*").sort(),
];

/** The version of kubectl here; undefined if it does not run here. */
export async function kubectlVersion(): Promise<string | undefined> {
  return execute("kubectl", ["version", "--client"], { timeout: 60_000 }).then(
    ({ stdout }) => stdout,
    () => undefined,
  );
}

/** What `kubectl apply --kustomize FOLDER` would apply. */
export async function built(folder: string): Promise<readonly Manifest[]> {
  const { stdout } = await execute("kubectl", ["kustomize", folder], { timeout: 60_000 });
  return parsed(stdout);
}

export function parsed(text: string): readonly Manifest[] {
  return parseAllDocuments(text)
    .map((document) => document.toJS({ maxAliasCount: 0 }) as Manifest | null)
    .filter((manifest) => manifest !== null);
}

/** The pod of a Deployment or StatefulSet. */
export class Pod {
  readonly #manifests: readonly Manifest[];
  // biome-ignore lint/suspicious/noExplicitAny: what Kubernetes accepts.
  readonly spec: any;

  constructor(deployment: Manifest, manifests: readonly Manifest[]) {
    this.#manifests = manifests;
    this.spec = deployment.spec.template.spec;
  }

  // biome-ignore lint/suspicious/noExplicitAny: what Kubernetes accepts.
  get container(): any {
    return this.spec.containers[0];
  }

  /** The content of the file that the container has at a path. Secrets have the certificate of the tests. */
  read(path: string): Buffer {
    const folder = posix.dirname(path);
    const name = posix.basename(path);
    const mount = this.container.volumeMounts.find(
      ({ mountPath }: { mountPath: string }) => mountPath === folder,
    );
    if (mount === undefined) throw new Error(`Nothing is mounted at ${folder}.`);
    const volume = this.spec.volumes.find((each: { name: string }) => each.name === mount.name);
    if (volume?.configMap !== undefined) {
      const configMap = this.#manifests.find(
        ({ kind, metadata }) => kind === "ConfigMap" && metadata.name === volume.configMap.name,
      );
      const content = configMap?.data?.[name];
      if (content === undefined) throw new Error(`${volume.configMap.name} has no ${name}.`);
      return Buffer.from(content);
    }
    if (volume?.projected !== undefined) {
      const tokens = volume.projected.sources.map(
        ({ serviceAccountToken }: { serviceAccountToken?: { path: string } }) =>
          serviceAccountToken?.path,
      );
      if (tokens.includes(name)) return Buffer.from("token");
    }
    if (volume?.secret !== undefined) {
      if (name.endsWith(".crt")) return certificates.cert;
      if (name.endsWith(".key")) return certificates.key;
      if (name === "tokens") return Buffer.from(`sha256:${"0".repeat(64)} prometheus\n`);
    }
    throw new Error(`There is no file ${path} in the pod.`);
  }

  /** The configuration that the service starts with. Throws if it refuses it. */
  config(): Config {
    const { args } = this.container;
    const path = args[args.indexOf("--config") + 1] ?? "";
    return loadConfig({
      flags: { config: [path] },
      env: {},
      readFile: (file) => this.read(file),
    });
  }
}

/** The Deployments and StatefulSets among the manifests, by name. */
export function workloadsOf(manifests: readonly Manifest[]): readonly Manifest[] {
  return manifests.filter(({ kind }) => kind === "Deployment" || kind === "StatefulSet");
}

/** Whether all of `selector` is among `labels`. */
export function selects(selector: Labels, labels: Labels): boolean {
  return Object.entries(selector).every(([name, value]) => labels[name] === value);
}

/** The text of a file of this repository. */
export function text(file: string): string {
  return readFileSync(file, "utf8");
}
