/** What a policy allows to do with objects, each independent of the others. */
export const verbs = ["get", "list", "watch", "put", "delete"] as const;

export type Verb = (typeof verbs)[number];

/** One key, or every key with a prefix (empty: every key), relative to the resource's prefix. */
export type AccessScope = { readonly key: string } | { readonly prefix: string };

/** What a call asks for: everything in its scope, and nothing else. */
export interface Access {
  readonly verb: Verb;
  readonly resource: string;
  readonly scope: AccessScope;
}

/** Describes an access in a sentence: `list the keys below "a/" of the resource "pods"`. */
export function describeAccess({ verb, resource, scope }: Access): string {
  return `${verb} ${describeScope(scope)} of the resource ${JSON.stringify(resource)}`;
}

/** Describes a scope: `the key "a"`, `the keys that begin with "a/"` or `all keys`. */
export function describeScope(scope: AccessScope): string {
  if ("key" in scope) return `the key ${JSON.stringify(scope.key)}`;
  if (scope.prefix === "") return "all keys";
  return `the keys that begin with ${JSON.stringify(scope.prefix)}`;
}
