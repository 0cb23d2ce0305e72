import { WatchFanoutError } from "../base/errors.ts";
import type { Identity } from "../identity/identity.ts";

/** What a policy allows to do with objects, each independent of the others. */
export const verbs = ["get", "list", "watch", "put", "delete"] as const;

export type Verb = (typeof verbs)[number];

/** Those that show objects. */
export const readVerbs = ["get", "list", "watch"] as const;

/** Stands for every resource. No resource has this name. */
export const everyResource = "*";

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

/**
 * Every right: each verb on each key of each resource, those included that are not served. It is what a call needs
 * whose request is not read here.
 */
export const fullAccess: readonly Access[] = verbs.map((verb) => ({
  verb,
  resource: everyResource,
  scope: { prefix: "" },
}));

/** The refusal of an access. It is the same whether or not the resource, or anything in the scope, exists. */
export function permissionDenied({ name }: Identity, access: Access): WatchFanoutError {
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not ${describeAccess(access)}. Request only what the policy allows, or ask the ` +
      "operator of the service for a role that allows this.",
    { metadata: { verb: access.verb, resource: access.resource, ...access.scope } },
  );
}

/** The refusal of a put that attaches an object to a lease which may have objects of others. */
export function leaseDenied({ name }: Identity, key: string, lease: bigint): WatchFanoutError {
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not attach the key ${JSON.stringify(key)} to the lease ${lease}, which the object does not ` +
      'have: that needs a rule with every verb on every key of every resource ("*"), since other keys may have the lease. ' +
      "Put with a time to live instead, or use the etcd API.",
    { metadata: { verb: "put", key, lease: String(lease) } },
  );
}

/** The refusal of a method of etcd's API that is not for callers with fewer rights. */
export function etcdMethodDenied({ name }: Identity): WatchFanoutError {
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not use this method of the etcd API: that needs a rule with every verb on every key of ` +
      'every resource ("*"). Range, Put, DeleteRange, Txn, Watch and the calls for one lease need rights for their keys ' +
      "alone.",
  );
}
