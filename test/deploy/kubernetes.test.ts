import { globSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { openAccess } from "../../src/cli/serve/start-up-text.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import { run } from "../cli/client/client-terminal.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { identityOf } from "../policy/identities.ts";
import {
  built,
  kubectlVersion,
  kustomizations,
  type Manifest,
  Pod,
  text,
  workloadsOf,
} from "./built-manifests.ts";
import { expectKeptData, expectOwnPods } from "./own-pods.ts";

const kubectl = await kubectlVersion();
const manifests = new Map<string, readonly Manifest[]>();
if (kubectl !== undefined) {
  for (const folder of kustomizations) manifests.set(folder, await built(folder));
}

/** The manifests of a folder, and those of one kind. */
function of(folder: string, kind?: string): readonly Manifest[] {
  const all = manifests.get(folder) ?? [];
  return kind === undefined ? all : all.filter((manifest) => manifest.kind === kind);
}

const production = "deploy/kubernetes/overlays/production";
const twoTiers = "deploy/kubernetes/overlays/two-tiers";

describe("The files of deploy", () => {
  test.each(globSync("deploy/**/*.yaml", { exclude: ["deploy/helm/**/templates/**"] }).sort())(
    "%s is YAML",
    (file) => {
      const documents = parseAllDocuments(text(file));
      expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
      expect(documents.length).toBeGreaterThan(0);
    },
  );

  test("of each kustomization are all part of it", () => {
    for (const file of globSync("deploy/kubernetes/**/kustomization.yaml")) {
      const folder = dirname(file);
      const used = text(file);
      for (const name of globSync("*.yaml", { cwd: folder })) {
        if (name !== "kustomization.yaml") expect(used).toContain(`- ${name}`.replace(/^- /, ""));
      }
    }
    const components = globSync("*", { cwd: "deploy/kubernetes/components" });
    const overlays = globSync("deploy/kubernetes/overlays/**/kustomization.yaml").map(text);
    for (const component of components) {
      expect(overlays.some((overlay) => overlay.includes(`components/${component}\n`))).toBe(true);
    }
  });

  test.each(globSync("deploy/**/policy.yaml").sort())(
    "%s passes `policy check` without a remark",
    async (file) => {
      expect(await run(["policy", "check", file])).toMatchObject({ code: 0, stderr: "" });
    },
  );
});

describe.skipIf(kubectl === undefined)("Kustomize (needs kubectl) builds", () => {
  test.each(kustomizations)("%s, with configurations that the service accepts", (folder) => {
    const deployments = workloadsOf(of(folder));
    expect(deployments.length).toBe(folder === twoTiers ? 2 : 1);
    for (const deployment of deployments) {
      const config = new Pod(deployment, of(folder)).config();
      if (folder.endsWith("development")) {
        expect(config.policy).toBeUndefined();
        continue;
      }
      expect(openAccess(config)).toBeUndefined();
      const rules = config.policy?.definition.roles.flatMap((role) => role.rules) ?? [];
      expect(rules.length).toBeGreaterThan(0);
      // A relay asks its upstream for its resources.
      const names = ["*", "services", ...config.resources.map(({ name }) => name)];
      expect(rules.flatMap(({ resources }) => resources)).toEqual(
        rules.map(() => expect.toBeOneOf(names)),
      );
    }
  });

  test.each(kustomizations)("%s, with Services, budgets and scalers of its own pods", (folder) => {
    expectOwnPods(of(folder));
  });

  test.each(kustomizations)("%s, with a volume for an embedded store", (folder) => {
    expect(expectKeptData(of(folder))).toBe(folder.endsWith("embedded") ? 1 : 0);
  });

  test.each(kustomizations)("%s, with a policy that is changed without new pods", (folder) => {
    for (const deployment of workloadsOf(of(folder))) {
      const { spec } = new Pod(deployment, of(folder));
      const names = spec.volumes.map(
        (volume: { configMap?: { name: string } }) => volume.configMap?.name,
      );
      const policies = names.filter((name: string | undefined) => name?.includes("policy"));
      expect(policies).toEqual([expect.stringMatching(/^watch-fanout-policy(?:-root|-relay)?$/)]);
    }
  });

  test("pods that trust the authority of the cluster, which is mounted", () => {
    for (const folder of kustomizations) {
      for (const deployment of workloadsOf(of(folder))) {
        const { container, spec } = new Pod(deployment, of(folder));
        const [{ value }] = container.env.filter(
          ({ name }: { name: string }) => name === "NODE_EXTRA_CA_CERTS",
        );
        const mount = container.volumeMounts.find(
          ({ mountPath }: { mountPath: string }) => mountPath === dirname(value),
        );
        const volume = spec.volumes.find(({ name }: { name: string }) => name === mount.name);
        expect(volume.configMap.name).toBe("kube-root-ca.crt");
      }
    }
  });

  test("production with mTLS on both ports, and probes and scraping over HTTPS", () => {
    const [deployment] = workloadsOf(of(production));
    if (deployment === undefined) throw new Error("There is no Deployment.");
    const pod = new Pod(deployment, of(production));
    const config = pod.config();
    expect(config.tls?.clientAuth).toBe("require");
    expect(config.admin.tls).toBeDefined();
    expect(config.admin.tokenFile).toBeDefined();
    for (const probe of ["readinessProbe", "livenessProbe"]) {
      expect(pod.container[probe].httpGet.scheme).toBe("HTTPS");
    }
    const [monitor] = of(production, "ServiceMonitor");
    expect(monitor?.spec.endpoints).toEqual([
      expect.objectContaining({ port: "admin", scheme: "https", authorization: expect.anything() }),
    ]);
    const [spread] = pod.spec.topologySpreadConstraints.filter(
      ({ topologyKey }: { topologyKey: string }) => topologyKey === "kubernetes.io/hostname",
    );
    expect(spread).toMatchObject({ maxSkew: 1, whenUnsatisfiable: "DoNotSchedule" });
  });

  test("two tiers: relays that follow the roots by a token, whose policy names them", () => {
    const [relay, root] = workloadsOf(of(twoTiers)).map((each) => new Pod(each, of(twoTiers)));
    const services = of(twoTiers, "Service").map(({ metadata }) => `${metadata.name}:50051`);
    expect(services).toEqual(["watch-fanout-relay:50051", "watch-fanout-root:50051"]);
    expect(relay?.config().upstream?.addresses).toEqual(["watch-fanout-root:50051"]);
    const policy = root?.read("/etc/watch-fanout-policy/policy.yaml").toString() ?? "";
    const authorizer = new Authorizer(policyOf(policy));
    const caller = identityOf(`system:serviceaccount:default:${relay?.spec.serviceAccountName}`);
    for (const verb of ["list", "watch", "put"] as const) {
      const scope = verb === "put" ? { key: "a" } : { prefix: "" };
      const access = { verb, resource: "services", scope };
      expect(authorizer.decide(caller, access).allowed).toBe(true);
      expect(authorizer.decide(identityOf("other"), access).allowed).toBe(false);
    }
    // The network lets them, too: a selector that has the label of one tier would not.
    for (const { spec } of of(twoTiers, "NetworkPolicy")) {
      const peers = [...spec.ingress.flatMap((rule: { from: unknown[] }) => rule.from)];
      expect(peers).toContainEqual({
        podSelector: {
          matchExpressions: [
            { key: "app.kubernetes.io/name", operator: "In", values: ["watch-fanout"] },
          ],
        },
      });
    }
  });
});

describe("The policy of the manifests", () => {
  const file = join("deploy/kubernetes/base", "policy.yaml");
  const authorizer = new Authorizer(policyOf(text(file)));

  test.each<[string, "watch" | "put", string, boolean]>([
    ["payments:api", "watch", "orders/", true],
    ["payments:deployer", "put", "payments/1", true],
    ["payments:deployer", "put", "orders/1", false],
    ["payments:api", "put", "payments/1", false],
    ["default:default", "watch", "payments/", false],
  ])("allows %s to %s %j: %s", (name, verb, key, allowed) => {
    const scope = verb === "watch" ? { prefix: key } : { key };
    const access = { verb, resource: "services", scope } as const;
    const caller = identityOf(`system:serviceaccount:${name}`);
    expect(authorizer.decide(caller, access).allowed).toBe(allowed);
  });
});

describe("The network policy", () => {
  test("allows the ports of the pods by their names", () => {
    const policy = parse(text("deploy/kubernetes/components/network-policy/network-policy.yaml"));
    const [{ ports }] = parse(text("deploy/kubernetes/base/deployment.yaml")).spec.template.spec
      .containers;
    const names = ports.map(({ name }: { name: string }) => name);
    for (const rule of policy.spec.ingress) expect(names).toContain(rule.ports[0].port);
  });
});
