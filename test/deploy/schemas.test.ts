import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { installedSchemas, kubeconform, kubernetesVersions } from "../../scripts/kubeconform.ts";
import { built, kubectlVersion, kustomizations, type Manifest } from "./built-manifests.ts";
import { helm, rendered, valuesFiles } from "./chart.ts";

/** Kinds of other projects, for which Kubernetes has no schema. */
const foreignGroups = ["monitoring.coreos.com", "istio.io", "linkerd.io"];

const binary = await kubeconform.installed();
const isMissing =
  binary === undefined || kubernetesVersions.some((each) => installedSchemas(each) === undefined);
const hasKubectl = (await kubectlVersion()) !== undefined;

interface Checked {
  readonly kind: string;
  readonly version: string;
  readonly status: string;
  readonly msg: string;
}

/** What kubeconform finds in the manifests; fields that do not exist are errors. */
async function check(manifests: readonly unknown[], version: string): Promise<readonly Checked[]> {
  const location = `${installedSchemas(version)}/{{.ResourceKind}}{{.KindSuffix}}.json`;
  const options = ["-strict", "-verbose", "-ignore-missing-schemas", "-output", "json", "-n", "1"];
  const child = spawn(binary ?? "", [...options, "-schema-location", location], {
    stdio: ["pipe", "pipe", "inherit"],
    timeout: 60_000,
  });
  child.stdin.end(manifests.map((manifest) => JSON.stringify(manifest)).join("\n---\n"));
  return JSON.parse(await text(child.stdout)).resources;
}

function isForeign({ version }: Checked): boolean {
  const [group = ""] = version.split("/");
  return foreignGroups.some((foreign) => group === foreign || group.endsWith(`.${foreign}`));
}

/** Every manifest is of a kind that the version of Kubernetes has, and is as its schema says. */
async function expectValid(manifests: readonly Manifest[], version: string): Promise<void> {
  const checked = await check(manifests, version);
  expect(checked).toHaveLength(manifests.length);
  const wrong = checked.filter((each) =>
    isForeign(each) ? each.status !== "statusSkipped" : each.status !== "statusValid",
  );
  expect(wrong).toEqual([]);
}

describe.skipIf(isMissing)("The schemas (need kubeconform: node scripts/kubeconform.ts)", () => {
  describe.each(kubernetesVersions)("of Kubernetes %s", (version) => {
    test.skipIf(!hasKubectl).each(kustomizations)("allow what %s builds", async (folder) => {
      await expectValid(await built(folder), version);
    });

    test.skipIf(helm === undefined).each(valuesFiles)(
      "allow what the chart renders with %s",
      async (file) => expectValid(await rendered(file), version),
    );

    test("do not allow a field that does not exist, or a kind that does not", async () => {
      const budget = { apiVersion: "policy/v1", kind: "PodDisruptionBudget" };
      const metadata = { name: "a" };
      const checked = await check(
        [
          { ...budget, metadata, spec: { minAvailable: 1 } },
          { ...budget, metadata, spec: { minimum: 1 } },
          { ...budget, apiVersion: "policy/v9", metadata },
        ],
        version,
      );
      expect(checked.map(({ status }) => status)).toEqual([
        ...["statusValid", "statusInvalid", "statusSkipped"],
      ]);
    });
  });
});
