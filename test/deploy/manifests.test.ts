import { globSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { openAccess } from "../../src/cli/serve/open-access.ts";
import { loadConfig } from "../../src/config/load-config.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import { run } from "../cli/client/client-terminal.ts";
import { policyOf } from "../config/parsed-policy.ts";
import { identityOf } from "../policy/identities.ts";

const folder = "deploy/kubernetes";

interface Mount {
  readonly name: string;
  readonly mountPath: string;
}

interface Deployment {
  readonly spec: {
    readonly template: {
      readonly spec: {
        readonly containers: readonly [
          {
            readonly args: readonly string[];
            readonly env: readonly { readonly name: string; readonly value: string }[];
            readonly volumeMounts: readonly Mount[];
          },
        ];
        readonly volumes: readonly { name: string; configMap: { readonly name: string } }[];
      };
    };
  };
}

interface Kustomization {
  readonly resources: readonly string[];
  readonly configMapGenerator: readonly {
    readonly name: string;
    readonly files: readonly string[];
    readonly options?: { readonly disableNameSuffixHash?: boolean };
  }[];
}

const read = <T>(file: string): T => parse(readFileSync(join(folder, file), "utf8"));
const deployment = read<Deployment>("deployment.yaml").spec.template.spec;
const { resources, configMapGenerator } = read<Kustomization>("kustomization.yaml");
const [container] = deployment.containers;

/** The file of deploy/kubernetes that a container has at a path. */
function mounted(path: string): string {
  const mount = container.volumeMounts.find(({ mountPath }) => mountPath === dirname(path));
  const volume = deployment.volumes.find(({ name }) => name === mount?.name);
  const generator = configMapGenerator.find(({ name }) => name === volume?.configMap.name);
  const file = generator?.files.find((name) => path.endsWith(`/${name}`));
  if (file === undefined) throw new Error(`The container has no file ${path}.`);
  return join(folder, file);
}

describe("The manifests", () => {
  const files = globSync("deploy/**/*.yaml").sort();

  test.each(files)("%s is YAML", (file) => {
    const documents = parseAllDocuments(readFileSync(file, "utf8"));
    expect(documents.flatMap(({ errors }) => errors)).toEqual([]);
    expect(documents.length).toBeGreaterThan(0);
  });

  test("of deploy/kubernetes are all part of the kustomization", () => {
    const used = [...resources, ...configMapGenerator.flatMap(({ files: names }) => names)];
    const all = globSync("*.yaml", { cwd: folder }).filter((name) => name !== "kustomization.yaml");
    expect([...used].sort()).toEqual(all.sort());
  });

  test("start the service with a configuration that it accepts, and that has a policy and callers", () => {
    const flag = container.args.indexOf("--config");
    const config = loadConfig({
      flags: { config: [container.args[flag + 1] ?? ""] },
      env: {},
      readFile: (path) => readFileSync(mounted(path)),
    });
    expect(config.policy?.definition.roles.length).toBeGreaterThan(0);
    expect(config.identity.jwt?.audience).toBe("watch-fanout");
    expect(openAccess(config)).toBeUndefined();
    const names = config.resources.map(({ name }) => name);
    const named = config.policy?.definition.roles.flatMap(({ rules }) => rules) ?? [];
    expect(named.flatMap((rule) => rule.resources).every((name) => names.includes(name))).toBe(
      true,
    );
  });

  test("trust the authority of the cluster, which is mounted", () => {
    const [variable] = container.env.filter(({ name }) => name === "NODE_EXTRA_CA_CERTS");
    const mount = container.volumeMounts.find(
      ({ mountPath }) => mountPath === dirname(variable?.value ?? ""),
    );
    const volume = deployment.volumes.find(({ name }) => name === mount?.name);
    expect(volume?.configMap.name).toBe("kube-root-ca.crt");
  });

  test("give a changed policy to the running service, and do not replace the pods for it", () => {
    const policy = configMapGenerator.find(({ files: names }) => names.includes("policy.yaml"));
    expect(policy?.options?.disableNameSuffixHash).toBe(true);
  });
});

describe("The policy of the manifests", () => {
  const file = join(folder, "policy.yaml");
  const authorizer = new Authorizer(policyOf(readFileSync(file, "utf8")));

  test("passes `policy check` without a remark", async () => {
    expect(await run(["policy", "check", file])).toEqual({
      code: 0,
      stdout: `${file} is a valid policy: 2 roles, 2 rules, 2 bindings.\n`,
      stderr: "",
    });
  });

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
