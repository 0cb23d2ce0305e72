import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { type Outcome, run } from "../client/client-terminal.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  vi.unstubAllEnvs();
});

function fileOf(content: string): string {
  const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
  folders.push(folder);
  const file = join(folder, "policy.yaml");
  writeFileSync(file, content);
  return file;
}

const policy = `roles:
  - name: reader
    rules:
      - { resources: [pods], prefixes: ["payments/"], verbs: [get, list, watch] }
      - { resources: [pods], keys: [motd], verbs: [watch] }
bindings:
  - { role: reader, subjects: ["spiffe://corp/*", "group:oncall"] }
`;

describe("policy check", () => {
  test("counts what a valid policy has", async () => {
    const file = fileOf(policy);
    expect(await run(["policy", "check", file])).toEqual({
      code: 0,
      stdout: `${file} is a valid policy: 1 role, 2 rules, 1 binding.\n`,
      stderr: "",
    });
  });

  test("prints each problem with its line, and fails", async () => {
    const file = fileOf(
      policy.replace("get, list", "got, list").replace("role: reader", "role: x y"),
    );
    const { code, stdout, stderr } = await run(["policy", "check", file]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr.split("\n")).toEqual([
      `error: ${file}:4: roles[0].rules[0].verbs[0]: "got" is not get, list, watch, put, delete or *. Did you mean "get"?`,
      `error: ${file}:7: bindings[0].role: "x y" is not the name of a role: letters, digits and - _ . : /.`,
      "",
    ]);
  });

  test("notes what may not be meant", async () => {
    const file = fileOf(`roles:
  - name: a
    rules:
      - { resources: [pods, "*"], prefixes: [team], verbs: [delete] }
bindings: []
`);
    const { code, stdout } = await run(["policy", "check", file]);
    expect(code).toBe(0);
    expect(stdout.split("\n")).toEqual([
      `${file}:4: note: the prefix "team" does not end with "/", so it also has keys such as "team-2".`,
      `${file}:4: note: delete returns the deleted object with its value, also without get.`,
      `${file}:4: note: "*" has all resources; the other names have no effect.`,
      `${file}:4: note: no binding gives the role "a".`,
      `${file} is a valid policy: 1 role, 1 rule, 0 bindings.`,
      "",
    ]);
  });

  test("says which file can't be read", async () => {
    const { code, stderr } = await run(["policy", "check", "/gone/policy.yaml"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/^error: "\/gone\/policy\.yaml" can't be read: ENOENT/);
  });
});

describe("policy can", () => {
  const can = (...args: string[]): Promise<Outcome> =>
    run(["policy", "can", ...args, "--policy", fileOf(policy)]);

  test("names the rule and the binding that allow it", async () => {
    expect(await can("spiffe://corp/app", "list", "pods", "payments/")).toEqual({
      code: 0,
      stdout:
        'allowed: spiffe://corp/app may list the keys that begin with "payments/" of the resource "pods": ' +
        'the rule reader[0] (line 4) allows it, which the binding in line 7 gives to "spiffe://corp/*".\n',
      stderr: "",
    });
  });

  test("says what is allowed instead", async () => {
    expect(await can("spiffe://corp/app", "list", "pods")).toEqual({
      code: 6,
      stdout:
        'denied: spiffe://corp/app may not list all keys of the resource "pods": no rule allows all of it; the roles ' +
        'of "spiffe://corp/app" ("reader") allow to list there only the keys that begin with "payments/".\n',
      stderr: "",
    });
  });

  test.each<readonly [number, readonly string[]]>([
    [0, ["ann", "get", "pods", "payments/1", "--group", "dev", "--group", "oncall"]],
    [6, ["ann", "get", "pods", "payments/1", "--group", "dev"]],
    [6, ["ann", "get", "pods", "payments", "--group", "oncall"]],
    [6, ["ann", "get", "pods", "--group", "oncall"]],
    [6, ["ann", "watch", "pods", "motd", "--group", "oncall"]],
    [0, ["ann", "watch", "pods", "motd", "--key", "--group", "oncall"]],
    [6, ["anonymous", "get", "pods", "payments/1", "--group", "oncall"]],
    [2, ["ann", "list", "pods", "motd", "--key"]],
    [2, ["ann", "read", "pods"]],
    [2, ["ann", "get"]],
  ])("ends with %i for %j", async (code, args) => {
    expect((await can(...args)).code).toBe(code);
  });

  test("reads the policy that the variable names", async () => {
    vi.stubEnv("WATCH_FANOUT_POLICY", fileOf(policy));
    expect(
      (await run(["policy", "can", "spiffe://corp/a", "get", "pods", "payments/1"])).code,
    ).toBe(0);
  });

  test("needs a policy", async () => {
    const { code, stderr } = await run(["policy", "can", "ann", "get", "pods", "a"]);
    expect(code).toBe(2);
    expect(stderr).toContain("required option '--policy <FILE>' not specified");
  });
});
