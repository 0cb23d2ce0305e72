import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { helm as binary } from "../../scripts/helm.ts";
import { type Manifest, parsed } from "./built-manifests.ts";

const execute = promisify(execFile);

/** The folder of the Helm chart. */
export const chart = "deploy/helm/watch-fanout";

/** The path of helm; undefined if it is not installed. */
export const helm = await binary.installed();

/** The files of values that the chart is tested with. */
export const valuesFiles = ["values.yaml", ...globSync("ci/*.yaml", { cwd: chart }).sort()];

/** Runs a command of helm with the values of a file over those of the chart, and returns its output. */
export async function runHelm(command: readonly string[], file: string): Promise<string> {
  const values = ["--values", join(chart, file)];
  const { stdout } = await execute(helm ?? "", [...command, chart, ...values], { timeout: 60_000 });
  return stdout;
}

/** What `helm install` would apply with the values of a file. */
export async function rendered(file: string): Promise<readonly Manifest[]> {
  // A helm that is built from its module takes Kubernetes 1.20 for granted.
  const options = ["--namespace", "default", "--kube-version", "1.31.0"];
  return parsed(await runHelm(["template", "wf", ...options], file));
}
