import { tokenDigest } from "../../../src/identity/token-file.ts";

/*
 * The callers of the escape test and their rights, with a model of them that shares no code with the service.
 */

export type Verb = "get" | "list" | "watch" | "put" | "delete";

interface Grant {
  readonly resources: readonly string[];
  readonly prefixes?: readonly string[];
  readonly keys?: readonly string[];
  readonly verbs: readonly Verb[];
}

/** The prefixes of the resources in etcd. */
export const prefixes: Readonly<Record<string, string>> = {
  pods: "/r/pods/",
  raw: "/r/raw/",
};

const rights: Readonly<Record<string, readonly Grant[]>> = {
  reader: [{ resources: ["pods", "raw"], prefixes: ["a/"], verbs: ["get", "list", "watch"] }],
  getter: [{ resources: ["pods"], keys: ["c/1", "a/x1"], verbs: ["get"] }],
  watcher: [{ resources: ["pods"], prefixes: ["b"], verbs: ["watch"] }],
  writer: [{ resources: ["pods"], prefixes: ["w/"], verbs: ["put"] }],
  editor: [
    { resources: ["pods"], prefixes: ["d/"], verbs: ["get", "list", "watch", "put", "delete"] },
    { resources: ["pods"], keys: ["a/1"], verbs: ["watch"] },
    { resources: ["pods"], prefixes: ["e/"], verbs: ["delete"] },
  ],
  owner: [{ resources: ["pods", "raw"], prefixes: ["o/"], verbs: ["put", "delete"] }],
  deleter: [{ resources: ["pods"], prefixes: ["e/"], verbs: ["delete"] }],
  all: [{ resources: ["raw"], prefixes: ["*"], verbs: ["get", "list", "watch"] }],
};

/** The limited callers. The last has no rights. */
export const callers: readonly string[] = [...Object.keys(rights), "stranger"];

/** The policy file; JSON is YAML. `root` has every right. */
export const policyText: string = JSON.stringify({
  roles: [
    ...Object.entries(rights).map(([name, rules]) => ({ name, rules })),
    { name: "root", rules: [{ resources: ["*"], prefixes: ["*"], verbs: ["*"] }] },
  ],
  bindings: [...Object.keys(rights), "root"].map((name) => ({ role: name, subjects: [name] })),
});

/** The file of the callers' tokens, which are their names. */
export const tokensText: string = [...callers, "root"]
  .map((name) => `sha256:${tokenDigest(name)} ${name}\n`)
  .join("");

/** All that begins with a prefix, or one key. */
type Area = { readonly from: Buffer; readonly isKey: boolean };

function areas(caller: string, verb: Verb): readonly Area[] {
  return (rights[caller] ?? [])
    .filter(({ verbs }) => verbs.includes(verb))
    .flatMap(({ resources, prefixes: granted = [], keys = [] }) =>
      resources.flatMap((resource) => [
        ...granted.map((prefix) => areaOf(resource, prefix === "*" ? "" : prefix, false)),
        ...keys.map((key) => areaOf(resource, key, true)),
      ]),
    );
}

function areaOf(resource: string, text: string, isKey: boolean): Area {
  return { from: Buffer.from(`${prefixes[resource]}${text}`), isKey };
}

/** Whether the caller may do this with one key. */
export function mayKey(caller: string, verb: Verb, key: Buffer): boolean {
  return areas(caller, verb).some(({ from, isKey }) =>
    isKey ? from.equals(key) : key.subarray(0, from.length).equals(from),
  );
}

/** Whether the caller may do this with all keys from `key` up to `end`, of which there are any. `end` "\0": all. */
export function mayRange(caller: string, verb: Verb, key: Buffer, end: Buffer): boolean {
  if (end.equals(Buffer.of(0))) return false;
  return areas(caller, verb).some(({ from, isKey }) => {
    if (isKey || !key.subarray(0, from.length).equals(from)) return false;
    const after = Buffer.from(from);
    after.writeUInt8(after.readUInt8(after.length - 1) + 1, after.length - 1);
    return Buffer.compare(end, after) <= 0;
  });
}
