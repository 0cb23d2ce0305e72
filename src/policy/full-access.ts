import { type Access, verbs } from "./access.ts";
import { everyResource } from "./definition.ts";

/**
 * Every right: each verb on each key of each resource, those included that are not served. It is what a call needs
 * whose request is not read here.
 */
export const fullAccess: readonly Access[] = verbs.map((verb) => ({
  verb,
  resource: everyResource,
  scope: { prefix: "" },
}));
