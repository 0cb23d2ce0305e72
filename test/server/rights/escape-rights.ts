import type { Access, AccessScope, Verb } from "../../../src/policy/access.ts";

/*
 * The callers of the escape test and their rights, with a model of the rights that shares no code with the service.
 */

interface Grant {
  readonly resources: readonly string[];
  readonly prefixes?: readonly string[];
  readonly keys?: readonly string[];
  readonly verbs: readonly Verb[];
}

const rights: Readonly<Record<string, readonly Grant[]>> = {
  "s/reader": [{ resources: ["pods", "raw"], prefixes: ["a/"], verbs: ["get", "list", "watch"] }],
  "s/watcher": [{ resources: ["pods"], prefixes: ["b/"], verbs: ["watch"] }],
  "s/getter": [
    { resources: ["pods"], keys: ["c/1", "a/x1"], verbs: ["get"] },
    { resources: ["later"], prefixes: ["*"], verbs: ["get", "list"] },
  ],
  "s/writer": [{ resources: ["pods"], prefixes: ["w/"], verbs: ["put"] }],
  "s/lister": [
    { resources: ["pods"], prefixes: ["a/x"], verbs: ["list", "watch"] },
    { resources: ["raw"], prefixes: ["b/"], verbs: ["list"] },
  ],
  "s/owner": [
    {
      resources: ["pods"],
      prefixes: ["d/"],
      verbs: ["get", "list", "watch", "put", "delete"],
    },
    { resources: ["pods"], keys: ["a/1"], verbs: ["watch"] },
  ],
};

/** A caller with every right. It is not limited, so nothing is searched in what it gets. */
export const root = "root";

/** The limited callers. The last has no rights. */
export const callers: readonly string[] = [...Object.keys(rights), "s/stranger"];

/** The policy file; JSON is YAML. */
export const policyText: string = JSON.stringify({
  roles: [
    ...Object.entries(rights).map(([name, rules]) => ({ name, rules })),
    { name: root, rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] },
  ],
  bindings: [
    ...Object.keys(rights).map((name) => ({ role: name, subjects: [name] })),
    { role: root, subjects: [root] },
  ],
});

/** Whether a caller may do all of it. */
export function mayDo(caller: string, { verb, resource, scope }: Access): boolean {
  return (rights[caller] ?? []).some(
    (grant) =>
      grant.resources.includes(resource) &&
      grant.verbs.includes(verb) &&
      ((grant.prefixes ?? []).some((prefix) => {
        const text = "key" in scope ? scope.key : scope.prefix;
        return prefix === "*" || text.startsWith(prefix);
      }) ||
        ("key" in scope && (grant.keys ?? []).includes(scope.key))),
  );
}

/** Whether a key is in a scope. */
export function isIn(key: string, scope: AccessScope): boolean {
  return "key" in scope ? key === scope.key : key.startsWith(scope.prefix);
}

/** Is in each value, in some keys, and in the name of a resource, and in no request of a limited caller. */
const mark = "zqxj";

/** The name of a resource that no limited caller may know. */
export const hidden = `hidden-${mark}`;

/** The keys that each resource has at first. */
export const keys: readonly string[] = [
  ...[
    "a",
    "a/",
    "a/1",
    "a/2",
    "a/x1",
    "a/x2",
    `a/${mark}-1`,
    "a0",
    "ab/1",
    "b/1",
    "b/2",
    `b/${mark}-2`,
  ],
  ...["c/1", "c/2", "d/1", "d/2", `d/${mark}-3`, "w/1", "w/2", "z", `${mark}-4`],
];

/** A value that says where it is from. */
export function markedValue(resource: string, key: string, round: number): string {
  const at = `${mark}[${resource}:${key}]`;
  const labels = { app: at, tier: "front" };
  return JSON.stringify({ metadata: { labels }, phase: round % 2 === 0 ? "on" : "off", data: at });
}

/**
 * The marks in bytes that are not of objects in `allowed`; undefined: nothing is allowed. Each is what was found, with what
 * is around it.
 */
export function escaped(
  bytes: string,
  allowed: Pick<Access, "resource" | "scope"> | undefined,
): readonly string[] {
  const found: string[] = [];
  for (const match of bytes.matchAll(/zqxj(?:\[([\w-]+):([^\]]*)\])?/g)) {
    const [, resource, key] = match;
    const around = bytes.slice(Math.max(0, match.index - 20), match.index + 30);
    const isAllowed =
      allowed !== undefined &&
      (resource === undefined || key === undefined
        ? keys.some(
            (known) => known.includes(mark) && around.includes(known) && isIn(known, allowed.scope),
          )
        : resource === allowed.resource && isIn(key, allowed.scope));
    if (!isAllowed) found.push(around);
  }
  return found;
}
