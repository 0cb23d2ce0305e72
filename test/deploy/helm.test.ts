import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { version } from "../../src/cli/output/version.ts";
import { openAccess } from "../../src/cli/serve/start-up-text.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { identityOf } from "../policy/identities.ts";
import { Pod, text, workloadsOf } from "./built-manifests.ts";
import { chart, helm, rendered, runHelm, valuesFiles } from "./chart.ts";
import { expectKeptData, expectOwnPods } from "./own-pods.ts";

test("The chart has the version of the service", () => {
  expect(text(join(chart, "Chart.yaml"))).toContain(
    `\nversion: ${version}\nappVersion: ${version}\n`,
  );
});

describe.skipIf(helm === undefined)("The chart (needs helm: node scripts/helm.ts)", () => {
  test.each(valuesFiles)("passes `helm lint --strict` with %s", async (file) => {
    await runHelm(["lint", "--strict"], file);
  });

  test.each(valuesFiles)(
    "renders configurations that the service accepts, with %s",
    async (file) => {
      const manifests = await rendered(file);
      expectOwnPods(manifests);
      const pods = workloadsOf(manifests).map((each) => new Pod(each, manifests));
      expect(pods).toHaveLength(/relays|embedded/.test(file) ? 2 : 1);
      expect(expectKeptData(manifests)).toBe(file.includes("embedded") ? 1 : 0);
      for (const pod of pods) {
        const config = pod.config();
        expect(openAccess(config)).toBeUndefined();
        expect(config.policy?.definition.roles.length).toBeGreaterThan(0);
      }
    },
  );

  test("refuses to scale the only process of an embedded store", async () => {
    const values = ["--set", "data.enabled=true,autoscaling.enabled=true"];
    const command = ["template", "wf", "--kube-version", "1.31.0", ...values];
    await expect(runHelm(command, "values.yaml")).rejects.toThrow(
      "data.enabled is one replica: autoscaling needs relays.enabled",
    );
  });

  test("has mTLS on both ports, where there are Secrets for it", async () => {
    const manifests = await rendered("ci/mtls-values.yaml");
    const [pod] = workloadsOf(manifests).map((each) => new Pod(each, manifests));
    const config = pod?.config();
    expect(config?.tls?.clientAuth).toBe("require");
    expect(config?.admin.tls).toBeDefined();
    expect(config?.admin.tokenFile).toBeDefined();
    expect(pod?.container.readinessProbe.httpGet.scheme).toBe("HTTPS");
  });

  test("has relays that follow the Service of the roots, whose policy names them", async () => {
    const manifests = await rendered("ci/relays-values.yaml");
    const pods = workloadsOf(manifests).map((each) => new Pod(each, manifests));
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
