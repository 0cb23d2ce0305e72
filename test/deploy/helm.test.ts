import { execFile } from "node:child_process";
import { globSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";
import { helm as binary } from "../../scripts/helm.ts";
import { version } from "../../src/cli/output/version.ts";
import { openAccess } from "../../src/cli/serve/open-access.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { identityOf } from "../policy/identities.ts";
import { deploymentsOf, type Manifest, Pod, parsed, text } from "./built-manifests.ts";
import { expectOwnPods } from "./own-pods.ts";

const execute = promisify(execFile);
const chart = "deploy/helm/watch-fanout";
const helm = await binary.installed();
const valuesFiles = ["values.yaml", ...globSync("ci/*.yaml", { cwd: chart }).sort()];

/** Runs helm with the values of a file over those of the chart. */
async function run(command: readonly string[], file: string): Promise<string> {
  const values = ["--values", join(chart, file)];
  const { stdout } = await execute(helm ?? "", [...command, chart, ...values], { timeout: 60_000 });
  return stdout;
}

async function rendered(file: string): Promise<readonly Manifest[]> {
  // A helm that is built from its module takes Kubernetes 1.20 for granted.
  const options = ["--namespace", "default", "--kube-version", "1.31.0"];
  return parsed(await run(["template", "wf", ...options], file));
}

test("The chart has the version of the service", () => {
  expect(text(join(chart, "Chart.yaml"))).toContain(
    `\nversion: ${version}\nappVersion: ${version}\n`,
  );
});

describe.skipIf(helm === undefined)("The chart (needs helm: node scripts/helm.ts)", () => {
  test.each(valuesFiles)("passes `helm lint --strict` with %s", async (file) => {
    await run(["lint", "--strict"], file);
  });

  test.each(valuesFiles)(
    "renders configurations that the service accepts, with %s",
    async (file) => {
      const manifests = await rendered(file);
      expectOwnPods(manifests);
      const pods = deploymentsOf(manifests).map((each) => new Pod(each, manifests));
      expect(pods).toHaveLength(file.includes("relays") ? 2 : 1);
      for (const pod of pods) {
        const config = pod.config();
        expect(openAccess(config)).toBeUndefined();
        expect(config.policy?.definition.roles.length).toBeGreaterThan(0);
      }
    },
  );

  test("has mTLS on both ports, where there are Secrets for it", async () => {
    const manifests = await rendered("ci/mtls-values.yaml");
    const [pod] = deploymentsOf(manifests).map((each) => new Pod(each, manifests));
    const config = pod?.config();
    expect(config?.tls?.clientAuth).toBe("require");
    expect(config?.admin.tls).toBeDefined();
    expect(config?.admin.tokenFile).toBeDefined();
    expect(pod?.container.readinessProbe.httpGet.scheme).toBe("HTTPS");
  });

  test("has relays that follow the Service of the roots, whose policy names them", async () => {
    const manifests = await rendered("ci/relays-values.yaml");
    const pods = deploymentsOf(manifests).map((each) => new Pod(each, manifests));
    const [root, relay] = pods.sort((a, b) =>
      a.spec.serviceAccountName.localeCompare(b.spec.serviceAccountName),
    );
    expect(relay?.config().upstream?.addresses).toEqual(["wf.default.svc:50051"]);
    const services = manifests.filter(({ kind }) => kind === "Service");
    expect(services.map(({ metadata }) => metadata.name).sort()).toEqual(["wf", "wf-relay"]);
    const policyOfTier = (pod: Pod | undefined): Authorizer =>
      new Authorizer(policyOf(pod?.read("/etc/watch-fanout-policy/policy.yaml").toString() ?? ""));
    const access = { verb: "put", resource: "services", scope: { key: "a" } } as const;
    const caller = identityOf(`system:serviceaccount:default:${relay?.spec.serviceAccountName}`);
    expect(policyOfTier(root).decide(caller, access).allowed).toBe(true);
    expect(policyOfTier(relay).decide(caller, access).allowed).toBe(false);
  });
});
