import { WatchFanoutError } from "../base/errors.ts";
import type { Identity } from "../identity/identity.ts";
import { type Access, describeAccess } from "./access.ts";

/** The refusal of an access. It is the same whether or not the resource, or anything in the scope, exists. */
export function permissionDenied({ name }: Identity, access: Access): WatchFanoutError {
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not ${describeAccess(access)}. Request only what the policy allows, or ask the ` +
      "operator of the service for a role that allows this.",
    { metadata: { verb: access.verb, resource: access.resource, ...access.scope } },
  );
}

/** The refusal of a call that is relayed unparsed, which needs every right. */
export function relayDenied({ name }: Identity): WatchFanoutError {
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not use the etcd API here: its requests are not read, so they need a rule with every ` +
      'verb on every key of every resource ("*"). Use ListWatchService for what the policy allows, or ask the operator ' +
      "of the service for such a rule.",
  );
}
