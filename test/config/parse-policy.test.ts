import { describe, expect, test } from "vitest";
import { maxPolicyBytes, parsePolicy } from "../../src/config/parse-policy.ts";
import fc, { runs } from "../property.ts";
import { problemsOf } from "./parsed-policy.ts";

const valid = `roles:
  - name: reader
    rules:
      - { resources: [pods], prefixes: ["a/"], verbs: [get, list] }
      - resources: ["*"]
        prefixes: ["*", "b/*"]
        keys: [k]
        verbs: ["*"]
bindings:
  - { role: reader, subjects: [ann, "s/*", "group:dev", "*"] }
`;

test("A policy file has roles with rules, and bindings", () => {
  expect(parsePolicy("policy.yaml", Buffer.from(valid))).toEqual({
    definition: {
      roles: [
        {
          name: "reader",
          rules: [
            { resources: ["pods"], prefixes: ["a/"], keys: [], verbs: ["get", "list"], line: 4 },
            {
              resources: ["*"],
              prefixes: ["", "b/"],
              keys: ["k"],
              verbs: ["get", "list", "watch", "put", "delete"],
              line: 5,
            },
          ],
        },
      ],
      bindings: [
        {
          role: "reader",
          subjects: [{ name: "ann" }, { namePrefix: "s/" }, { group: "dev" }, "everyone"],
          line: 10,
        },
      ],
    },
  });
});

/** The valid file with one text replaced. */
function but(before: string, after: string): string {
  expect(valid).toContain(before);
  return valid.replace(before, after);
}

describe("A policy file is refused with file, line and what is accepted", () => {
  test.each<readonly [string, string, string]>([
    [
      "verbs: [get, list]",
      "verbs: [gets, list]",
      'policy.yaml:4: roles[0].rules[0].verbs[0]: "gets" is not get, list, watch, put, delete or *. ' +
        'Did you mean "get"?',
    ],
    [
      "name: reader",
      "name: [reader]",
      "policy.yaml:2: roles[0].name: [ 'reader' ] is not text; put it in quotes.",
    ],
    [
      "name: reader",
      'name: "a role"',
      'policy.yaml:2: roles[0].name: "a role" is not the name of a role: letters, digits and - _ . : /.',
    ],
    [
      "resources: [pods]",
      "resources: [Pods]",
      'policy.yaml:4: roles[0].rules[0].resources[0]: "Pods" is not the name of a resource (lower-case letters, ' +
        'digits and hyphens), or "*" for all.',
    ],
    [
      "resources: [pods]",
      "resources: pods",
      'policy.yaml:4: roles[0].rules[0].resources: "pods" is not a list, such as [pods].',
    ],
    [
      "resources: [pods]",
      "resources: []",
      "policy.yaml:4: roles[0].rules[0].resources: [] is an empty list.",
    ],
    ["resources: [pods], ", "", "policy.yaml:4: roles[0].rules[0].resources: is missing."],
    [
      'prefixes: ["a/"], ',
      "",
      "policy.yaml:4: roles[0].rules[0]: { resources: [ 'pods' ], verbs: [ 'get', 'list' ] } has neither prefixes " +
        'nor keys; for all keys write prefixes: ["*"].',
    ],
    [
      'prefixes: ["a/"]',
      'prefixes: [""]',
      'policy.yaml:4: roles[0].rules[0].prefixes[0]: "" is not a prefix of keys, such as "team-a/"; "*" is allowed ' +
        "only for all keys, or as the last path element.",
    ],
    [
      'prefixes: ["a/"]',
      'prefixes: ["a*"]',
      'policy.yaml:4: roles[0].rules[0].prefixes[0]: "a*" is not a prefix of keys, such as "team-a/"; "*" is ' +
        "allowed only for all keys, or as the last path element.",
    ],
    [
      'prefixes: ["a/"]',
      'prefixes: ["a/*/b"]',
      'policy.yaml:4: roles[0].rules[0].prefixes[0]: "a/*/b" is not a prefix of keys, such as "team-a/"; "*" is ' +
        "allowed only for all keys, or as the last path element.",
    ],
    [
      'prefixes: ["a/"]',
      'prefixes: ["\\uD800/"]',
      'policy.yaml:4: roles[0].rules[0].prefixes[0]: "\\ud800/" is not valid Unicode.',
    ],
    [
      "keys: [k]",
      'keys: ["k/*"]',
      'policy.yaml:7: roles[0].rules[1].keys[0]: "k/*" is not a key, such as "team-a/settings"; for several keys ' +
        'use prefixes, without "*" in keys.',
    ],
    [
      "subjects: [ann,",
      'subjects: ["an*",',
      'policy.yaml:10: bindings[0].subjects[0]: "an*" is not a subject: a name, a name that ends with "/*", ' +
        '"group:NAME", or "*" for every identity with a credential.',
    ],
    [
      '"group:dev"',
      '"group:"',
      'policy.yaml:10: bindings[0].subjects[2]: "group:" is not a subject: a name, a name that ends with "/*", ' +
        '"group:NAME", or "*" for every identity with a credential.',
    ],
    [
      "subjects: [ann,",
      "subjects: [7,",
      "policy.yaml:10: bindings[0].subjects[0]: 7 is not text; put it in quotes.",
    ],
    [
      "role: reader",
      "role: raeder",
      'policy.yaml:10: bindings[0].role: there is no role "raeder". Did you mean "reader"?',
    ],
    [
      'prefixes: ["a/"]',
      'prefix: ["a/"]',
      "policy.yaml:4: roles[0].rules[0].prefix: a rule has no such key. Its keys are resources, prefixes, keys, " +
        'verbs. Did you mean "prefixes"?',
    ],
    [
      "bindings:",
      "binding:",
      'policy.yaml:10: binding: a policy has no such key. Its keys are roles, bindings. Did you mean "bindings"?',
    ],
    [
      "subjects: [ann,",
      "subject: [x], subjects: [ann,",
      "policy.yaml:10: bindings[0].subject: a binding has no such key. Its keys are role, subjects. Did you mean " +
        '"subjects"?',
    ],
    [
      "name: reader",
      "name: reader\n    groups: []",
      "policy.yaml:3: roles[0].groups: a role has no such key. Its keys are name, rules.",
    ],
    ["  - { role", "  - name: x\n  - { role", "policy.yaml:10: bindings[0].role: is missing."],
    ["roles:", "roles: {}\nothers:", "policy.yaml:1: roles: {} is not a list of roles."],
    ["roles:", "roles: *", "policy.yaml:1: not valid YAML: Alias cannot be an empty string"],
    ["roles:", "roles: []\nroles:", "policy.yaml:2: not valid YAML: Map keys must be unique"],
  ])("%j as %j", (before, after, problem) => {
    expect(problemsOf(but(before, after))).toContain(problem);
  });

  test.each<readonly [string, string | Uint8Array, string]>([
    [
      "without content",
      "# nothing",
      "policy.yaml: is empty. A policy that allows nothing has roles: [] and bindings: [].",
    ],
    ["with a list", "- a", "policy.yaml: is not a mapping of roles and bindings."],
    ["without bindings", "roles: []", "policy.yaml: bindings: is missing."],
    ["with bytes that are not UTF-8", Buffer.from([0xff]), "policy.yaml: is not UTF-8."],
    [
      "with two roles of one name",
      "roles:\n  - &r { name: a, rules: [{resources: [x], keys: [k], verbs: [get]}] }\n  - *r\nbindings: []",
      'policy.yaml:3: roles[1].name: there is another role "a"; names must differ.',
    ],
    [
      "that is too large",
      `${valid}${" ".repeat(maxPolicyBytes)}`,
      `policy.yaml: has ${maxPolicyBytes + valid.length} bytes. A policy has at most ${maxPolicyBytes}.`,
    ],
    [
      "with too many grants",
      `roles:\n  - name: a\n    rules:\n      - resources: [${names("r", 200)}]\n        prefixes: [${names("p", 101)}]\n` +
        '        verbs: ["*"]\nbindings: []\n',
      "policy.yaml:2: roles: the rules have 101000 combinations of a resource, a verb, and a prefix or key. A policy " +
        'has at most 100000. Use wider prefixes, or "*".',
    ],
  ])("%s", (_what, content, problem) => {
    expect(problemsOf(content)).toEqual([problem]);
  });

  test("with at most 20 problems at once", () => {
    const problems = problemsOf(but("[get, list]", `[${names("x", 50)}]`));
    expect(problems).toHaveLength(21);
    expect(problems.at(-1)).toBe("policy.yaml: and 30 more problems.");
  });

  test("and never with an exception", () => {
    const value = fc.anything({ maxDepth: 3, withNullPrototype: false });
    const file = fc.oneof(
      fc.string(),
      fc.json(),
      fc.record({ roles: value, bindings: value }).map((content) => JSON.stringify(content) ?? ""),
    );
    fc.assert(
      fc.property(file, (content) => {
        const { definition, problems } = parsePolicy("p", Buffer.from(content));
        expect((definition === undefined) === (problems !== undefined)).toBe(true);
      }),
      { numRuns: runs(500) },
    );
  });
});

function names(letter: string, count: number): string {
  return Array.from({ length: count }, (_, index) => `${letter}${index}`).join(", ");
}
