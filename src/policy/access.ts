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

/** A lease in the audit and in errors. etcdctl prints ids in this form. */
export function leaseName(lease: bigint): string {
  return `lease ${lease.toString(16).padStart(16, "0")}`;
}

/** What a call does with a lease, and needs for that. */
interface DeniedUse {
  readonly what: string;
  readonly verb: Verb;
  /** The rights to each attached object. */
  readonly needs: readonly Verb[];
}

/** The refusal of the use of a lease. `isTooLarge`: it has too many objects to check. */
export function leaseDenied(
  { name }: Identity,
  { what, verb, needs }: DeniedUse,
  lease: bigint,
  isTooLarge: boolean,
): WatchFanoutError {
  const why = isTooLarge
    ? "it has more objects than are checked against a policy. Use several leases, each for at most a thousand objects"
    : `that needs the right to ${needs.join(" and to ")} each object that is attached to it. Use a lease of your own, or ask ` +
      "the operator of the service for a role that allows this";
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not ${what} the lease ${lease}: ${why}.`,
    { metadata: { verb, lease: String(lease) } },
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
