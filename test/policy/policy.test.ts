import { describe, expect, test } from "vitest";
import { anonymous, type Identity } from "../../src/identity/identity.ts";
import {
  type Access,
  type AccessScope,
  etcdMethodDenied,
  permissionDenied,
  readVerbs,
  type Verb,
  verbs,
} from "../../src/policy/access.ts";
import { Authorizer } from "../../src/policy/authorizer.ts";
import type { Subject } from "../../src/policy/definition.ts";
import { Policy } from "../../src/policy/policy.ts";
import { policyOf } from "../config/parsed-policy.ts";
import fc, { runs } from "../property.ts";
import { identityOf } from "./identities.ts";

const policy = policyOf(`
roles:
  - name: payments-reader
    rules:
      - { resources: [pods, services], prefixes: ["payments/"], verbs: [get, list, watch] }
      - { resources: [pods], keys: [shared], verbs: [get, watch] }
  - name: payments-writer
    rules:
      - { resources: [pods], prefixes: ["payments/*"], verbs: [put, delete] }
  - name: admin
    rules:
      - { resources: ["*"], prefixes: ["*"], verbs: ["*"] }
  - name: public
    rules:
      - { resources: [pods], keys: [motd], verbs: [get] }
bindings:
  - { role: payments-reader, subjects: ["spiffe://corp/ns/payments/*", "group:oncall"] }
  - { role: payments-writer, subjects: ["spiffe://corp/ns/payments/sa/deployer"] }
  - { role: admin, subjects: [root] }
  - { role: public, subjects: ["*", anonymous] }
`);

function isCovered(
  scope: AccessScope,
  prefixes: readonly string[],
  keys: readonly string[],
): boolean {
  if ("prefix" in scope) return prefixes.some((prefix) => scope.prefix.startsWith(prefix));
  return keys.includes(scope.key) || prefixes.some((prefix) => scope.key.startsWith(prefix));
}

const scopes = { payments: { prefix: "payments/" }, all: { prefix: "" } } as const;

function ruleOf(
  name: string,
  verb: Verb,
  resource: string,
  scope: AccessScope,
  ...groups: string[]
): string | undefined {
  return policy.allowing(identityOf(name, ...groups), { verb, resource, scope })?.name;
}

describe("A policy", () => {
  const app = "spiffe://corp/ns/payments/sa/app";

  test.each<readonly [string, Verb, string, AccessScope, string | undefined]>([
    [app, "list", "pods", scopes.payments, "payments-reader[0]"],
    [app, "list", "services", { prefix: "payments/a" }, "payments-reader[0]"],
    [app, "list", "nodes", scopes.payments, undefined],
    [app, "list", "pods", scopes.all, undefined],
    [app, "list", "pods", { prefix: "payments" }, undefined],
    [app, "get", "pods", { key: "payments/1" }, "payments-reader[0]"],
    [app, "get", "pods", { key: "shared" }, "payments-reader[1]"],
    [app, "list", "pods", { prefix: "shared" }, undefined],
    [app, "put", "pods", { key: "payments/1" }, undefined],
    [
      "spiffe://corp/ns/payments/sa/deployer",
      "put",
      "pods",
      { key: "payments/1" },
      "payments-writer[0]",
    ],
    ["spiffe://corp/ns/payments/sa/deployer", "put", "pods", { key: "x" }, undefined],
    ["spiffe://corp/ns/payments/", "list", "pods", scopes.payments, undefined],
    ["spiffe://corp/ns/payments", "list", "pods", scopes.payments, undefined],
    ["spiffe://corp/ns/payments2/a", "list", "pods", scopes.payments, undefined],
    ["root", "delete", "anything", scopes.all, "admin[0]"],
    ["root2", "delete", "anything", scopes.all, undefined],
    ["group:oncall", "list", "pods", scopes.payments, undefined],
    ["a stranger", "get", "pods", { key: "motd" }, "public[0]"],
    ["a stranger", "get", "pods", { key: "motd2" }, undefined],
  ])("allows %s to %s %s %j by the rule %s", (name, verb, resource, scope, rule) => {
    expect(ruleOf(name, verb, resource, scope)).toBe(rule);
  });

  test("gives the members of a group the roles of the group", () => {
    expect(ruleOf("ann", "watch", "pods", scopes.payments, "dev", "oncall")).toBe(
      "payments-reader[0]",
    );
    expect(ruleOf("ann", "watch", "pods", scopes.payments, "dev")).toBeUndefined();
  });

  test("gives an identity without a credential only what is bound to its name", () => {
    const all = policyOf(`
roles: [{ name: all, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] }]
bindings: [{ role: all, subjects: ["*", "group:x"] }]
`);
    const access: Access = { verb: "get", resource: "pods", scope: { key: "a" } };
    expect(all.allowing(identityOf("ann"), access)).toBeDefined();
    expect(all.allowing(anonymous, access)).toBeUndefined();
    expect(all.allowing({ ...anonymous, groups: ["x"] }, access)).toBeUndefined();
    expect(policy.allowing(anonymous, { ...access, scope: { key: "motd" } })).toBeDefined();
  });

  test("lets an identity know the resources on which it has any right", () => {
    const known = (name: string): readonly string[] =>
      ["pods", "services", "nodes"].filter((each) => policy.concerns(identityOf(name), each));
    expect(known(app)).toEqual(["pods", "services"]);
    expect(known("a stranger")).toEqual(["pods"]);
    expect(known("root")).toEqual(["pods", "services", "nodes"]);
    const nothing = new Policy({ roles: [], bindings: [] });
    expect(nothing.concerns(identityOf(app), "pods")).toBe(false);
  });

  test("explains by which rule and binding it allows, and what it allows instead", () => {
    const why = (name: string, access: Access): string =>
      policy.explain(identityOf(name), access).why;
    expect(why(app, { verb: "list", resource: "pods", scope: scopes.payments })).toBe(
      "the rule payments-reader[0] (line 5) allows it, which the binding in line 17 gives to " +
        '"spiffe://corp/ns/payments/*"',
    );
    expect(why(app, { verb: "list", resource: "pods", scope: scopes.all })).toBe(
      `no rule allows all of it; the roles of "${app}" ("payments-reader", "public") allow to list there only ` +
        'the keys that begin with "payments/"',
    );
    expect(why(app, { verb: "delete", resource: "pods", scope: { key: "payments/1" } })).toBe(
      `the roles of "${app}" ("payments-reader", "public") allow only to get, list, watch keys of the resource "pods"`,
    );
    expect(why(app, { verb: "get", resource: "nodes", scope: { key: "a" } })).toBe(
      `the roles of "${app}" ("payments-reader", "public") have no rights on the resource "nodes"`,
    );
    const closed = new Policy({ roles: [], bindings: [] });
    expect(
      closed.explain(identityOf("ann"), { verb: "get", resource: "pods", scope: { key: "a" } }),
    ).toEqual({
      allowed: false,
      why: 'no binding has a subject that matches "ann" or one of its groups',
    });
  });

  test("explains by the first binding that gives the role, and lists ten keys at most", () => {
    const keys = Array.from({ length: 12 }, (_, index) => `k${index}`);
    const explained = policyOf(`
roles:
  - name: all
    rules: [{ resources: [pods], prefixes: ["*"], verbs: [get] }]
  - name: ten
    rules: [{ resources: [ten], keys: [${keys.slice(0, 10).join(", ")}], verbs: [get] }]
  - name: twelve
    rules: [{ resources: [twelve], keys: [${keys.join(", ")}], verbs: [get] }]
bindings:
  - { role: all, subjects: [ann, "*"] }
  - { role: ten, subjects: [ann] }
  - { role: twelve, subjects: [ann] }
`);
    const why = (verb: Verb, resource: string, scope: AccessScope): string =>
      explained.explain(identityOf("ann"), { verb, resource, scope }).why;
    expect(why("get", "pods", { key: "a" })).toBe(
      'the rule all[0] (line 4) allows it, which the binding in line 10 gives to "ann"',
    );
    const ten = keys.slice(0, 10).map((key) => `the key "${key}"`);
    expect(why("get", "ten", { key: "a" })).toMatch(`allow to get there only ${ten.join(", ")}`);
    expect(why("get", "ten", { key: "a" })).not.toMatch("more");
    expect(why("get", "twelve", { key: "a" })).toMatch(
      new RegExp(`allow to get there only ${ten.join(", ")} and 2 more$`),
    );
  });

  test("lets an identity read a resource with any verb that reads, in any scope", () => {
    const reading = policyOf(`
roles:
  - name: watcher
    rules: [{ resources: [pods], keys: [a], verbs: [watch] }]
  - name: writer
    rules: [{ resources: [nodes], prefixes: ["*"], verbs: [put, delete] }]
  - name: auditor
    rules: [{ resources: ["*"], keys: [log], verbs: [list] }]
bindings:
  - { role: watcher, subjects: [ann, root] }
  - { role: writer, subjects: [ann] }
  - { role: auditor, subjects: [root] }
`);
    const readable = (name: string): readonly string[] =>
      ["pods", "services", "nodes"].filter((each) =>
        reading.mayAny(identityOf(name), readVerbs, each),
      );
    expect(readable("ann")).toEqual(["pods"]);
    expect(readable("root")).toEqual(["pods", "services", "nodes"]);
    expect(readable("bob")).toEqual([]);
    expect(reading.concerns(identityOf("ann"), "nodes")).toBe(true);
    expect(reading.concerns(identityOf("ann"), "services")).toBe(false);
  });

  test("looks up the roles of an identity once", () => {
    let lookups = 0;
    const ann: Identity = {
      ...identityOf("ann"),
      get groups() {
        lookups++;
        return [];
      },
    };
    const access: Access = { verb: "get", resource: "pods", scope: { key: "motd" } };
    expect(policy.allowing(ann, access)).toBeDefined();
    expect(policy.allowing(ann, access)).toBeDefined();
    expect(lookups).toBe(1);
  });

  test("allows exactly what one rule of one of the identity's roles has as a whole", () => {
    const part = fc.constantFrom("a", "a/", "a/b", "b", "");
    const rule = fc.record({
      resources: fc.uniqueArray(fc.constantFrom<string>("x", "y", "*"), { minLength: 1 }),
      prefixes: fc.array(part, { maxLength: 2 }),
      keys: fc.array(part, { maxLength: 2 }),
      verbs: fc.uniqueArray(fc.constantFrom(...verbs), { minLength: 1 }),
      line: fc.constant(1),
    });
    const subject = fc.constantFrom(
      { name: "s/ann" },
      { namePrefix: "s/" },
      { group: "g" },
      "everyone" as const,
      { name: "bob" },
    );
    const definition = fc.record({
      roles: fc
        .array(fc.array(rule, { minLength: 1, maxLength: 3 }), { minLength: 1, maxLength: 3 })
        .map((roles) => roles.map((rules, index) => ({ name: `r${index}`, rules }))),
      bindings: fc.array(
        fc.record({
          role: fc.constantFrom<string>("r0", "r1", "r2"),
          subjects: fc.array(subject, { minLength: 1, maxLength: 2 }),
          line: fc.constant(1),
        }),
      ),
    });
    const access = fc.record({
      verb: fc.constantFrom(...verbs),
      resource: fc.constantFrom("x", "y", "z"),
      scope: fc.oneof(
        part.map((key): AccessScope => ({ key })),
        part.map((prefix): AccessScope => ({ prefix })),
      ),
    });
    const ann = identityOf("s/ann", "g");
    const matches = (given: Subject): boolean =>
      given === "everyone" || !("name" in given) || given.name === ann.name;
    fc.assert(
      fc.property(definition, access, (given, asked) => {
        const mine = given.bindings
          .filter(({ subjects }) => subjects.some(matches))
          .map(({ role }) => role);
        const expected = given.roles.some(
          ({ name, rules }) =>
            mine.includes(name) &&
            rules.some(
              ({ resources, prefixes, keys, verbs: allowed }) =>
                (resources.includes("*") || resources.includes(asked.resource)) &&
                allowed.includes(asked.verb) &&
                isCovered(asked.scope, prefixes, keys),
            ),
        );
        const compiled = new Policy(given);
        expect(compiled.allowing(ann, asked) !== undefined).toBe(expected);
        expect(compiled.explain(ann, asked).allowed).toBe(expected);
      }),
      { numRuns: runs(2_000) },
    );
  });
});

describe("An authorizer", () => {
  const access: Access = { verb: "get", resource: "pods", scope: { key: "motd" } };

  test("allows everything without a policy", () => {
    const authorizer = new Authorizer();
    expect(authorizer.hasPolicy).toBe(false);
    expect(authorizer.decide(anonymous, access)).toEqual({ allowed: true, rule: undefined });
    expect(authorizer.mayKnow(anonymous, "pods")).toBe(true);
  });

  test("decides by its policy, and by the next one from when it is replaced", () => {
    const authorizer = new Authorizer(policy);
    const changes: number[] = [];
    authorizer.onChange(() => changes.push(authorizer.generation));
    expect(authorizer.decide(anonymous, access)).toEqual({ allowed: true, rule: "public[0]" });
    expect(authorizer.decide(anonymous, { ...access, verb: "put" }).allowed).toBe(false);
    authorizer.replace(new Policy({ roles: [], bindings: [] }));
    expect(changes).toEqual([1]);
    expect(authorizer.decide(anonymous, access)).toEqual({ allowed: false, rule: undefined });
    expect(authorizer.mayKnow(anonymous, "pods")).toBe(false);
  });

  test("lets read what its policy does, and everything without one", () => {
    expect(new Authorizer().mayRead(anonymous, "nodes")).toBe(true);
    const authorizer = new Authorizer(policy);
    expect(authorizer.hasPolicy).toBe(true);
    expect(authorizer.mayRead(anonymous, "pods")).toBe(true);
    expect(authorizer.mayRead(anonymous, "nodes")).toBe(false);
  });

  test("finds the first of several accesses that is denied", () => {
    const authorizer = new Authorizer(policy);
    const put = { ...access, verb: "put" } as const;
    const watch = { ...access, verb: "watch" } as const;
    expect(authorizer.firstDenied(anonymous, access)).toBeUndefined();
    expect(authorizer.firstDenied(anonymous, put)).toBe(put);
    expect(authorizer.firstDenied(anonymous, [access, put, watch])).toBe(put);
    expect(authorizer.firstDenied(anonymous, [access, access])).toBeUndefined();
  });

  test("counts the denied calls by verb, and the streams that a changed policy ended", () => {
    const authorizer = new Authorizer();
    authorizer.countDenied("put");
    authorizer.countDenied("put");
    authorizer.countDenied("watch");
    authorizer.countRevoked();
    expect(authorizer.denied).toEqual({ get: 0, list: 0, watch: 1, put: 2, delete: 0 });
    expect(authorizer.revoked).toBe(1);
  });
});

describe("A denial", () => {
  test("names the caller, the verb, the resource and the scope", () => {
    const error = permissionDenied(identityOf("ann"), {
      verb: "list",
      resource: "pods",
      scope: { prefix: "a/" },
    });
    expect(error).toMatchObject({
      reason: "PERMISSION_DENIED",
      message:
        '"ann" may not list the keys that begin with "a/" of the resource "pods". Request only what the policy ' +
        "allows, or ask the operator of the service for a role that allows this.",
      metadata: { verb: "list", resource: "pods", prefix: "a/" },
    });
  });

  test.each<readonly [AccessScope, string, Record<string, string>]>([
    [{ key: "a" }, 'the key "a"', { key: "a" }],
    [{ prefix: "" }, "all keys", { prefix: "" }],
  ])("names the scope %j as %s", (scope, described, metadata) => {
    const error = permissionDenied(identityOf("ann"), { verb: "get", resource: "pods", scope });
    expect(error.message).toMatch(`"ann" may not get ${described} of the resource "pods".`);
    expect(error.metadata).toEqual({ verb: "get", resource: "pods", ...metadata });
  });

  test("of the relayed etcd API names the caller and the right that it lacks", () => {
    expect(etcdMethodDenied(identityOf("ann"))).toMatchObject({
      reason: "PERMISSION_DENIED",
      message: expect.stringMatching(/^"ann" may not use this method of the etcd API/),
    });
  });
});
