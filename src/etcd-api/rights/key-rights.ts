import { dropOldest } from "../../base/drop-oldest.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { isOneKey } from "../../etcd/client/key-range.ts";
import type { KeyAccess } from "../../etcd/wire/checked-requests.ts";
import type { Identity } from "../../identity/identity.ts";
import { keyText } from "../../model/key-bytes.ts";
import {
  type Access,
  etcdMethodDenied,
  everyResource,
  leaseName,
  readVerbs,
  type Verb,
} from "../../policy/access.ts";
import { openToAll } from "../../policy/authorizer.ts";
import {
  type Auditing,
  auditAllowed,
  auditDenied,
  auditEntry,
  isAudited,
} from "../../server/calls/audit.ts";
import type { ServerCall } from "../../server/calls/server-call.ts";
import { type CachedKeys, scopeIn } from "../../storage/etcd/covering-scope.ts";

const none: Buffer = Buffer.alloc(0);

/** Maximum size of the keys of a lease that a limited caller may use, by `leasedBytes`. */
export const maxLeaseBytes = 256 * 1024;

/** Maximum number of leases of a call whose refusal is known to be audited; the oldest make room. */
const maxRefusedLeases = 256;

/** What a key counts for `maxLeaseBytes`: its size, and what it costs to check it. */
export function leasedBytes(key: Buffer): number {
  return key.length + 64;
}

/** Keys of etcd, and for what. */
export interface AskedKeys extends Pick<KeyAccess, "key" | "rangeEnd"> {
  readonly kind: KeyAccess["kind"] | "watch";
}

/** A resource, as far as it says which keys are its own. */
interface NamedKeys {
  readonly name: string;
  readonly keys: CachedKeys;
}

/**
 * What a caller that may not do everything may do with keys of etcd. Keys belong to resources by their prefix: a range is
 * allowed if a resource has all of it, and the policy grants all of it there, as to a caller of ListWatchService.
 */
export class KeyRights {
  readonly #context: Auditing;
  readonly #call: ServerCall;
  readonly #method: string;
  readonly #resources: () => Iterable<NamedKeys>;
  /** The leases that the call may not use, as the audit has. A stream of keepalives may ask for one again and again. */
  readonly #refusedLeases = new Set<bigint>();

  /** `method`: its name in the audit. `resources`: those that are known now. */
  constructor(
    context: Auditing,
    call: ServerCall,
    method: string,
    resources: () => Iterable<NamedKeys>,
  ) {
    this.#context = context;
    this.#call = call;
    this.#method = method;
    this.#resources = resources;
  }

  /** That of the policy now: what was decided before may not hold with another one. */
  get generation(): number {
    return this.#context.authorizer.generation;
  }

  /** The rights that allow all of it; an error if one is missing. It is audited. */
  check(asked: readonly AskedKeys[]): readonly Access[] | WatchFanoutError {
    const accesses: Access[] = [];
    for (const keys of asked) {
      const access = this.#allowing(keys);
      if (access === undefined) return this.#deny(keys);
      accesses.push(access);
    }
    for (const access of accesses) {
      auditAllowed(this.#context, this.#method, this.#call, access, undefined);
    }
    return accesses;
  }

  /** The refusal of a watch stream, whose responses show revisions: the caller may read nothing. Undefined: it may. */
  get streamRefusal(): WatchFanoutError | undefined {
    return this.refusalWithout(readVerbs, "watch");
  }

  /**
   * The refusal of a method that is for callers with one of these verbs on anything. Undefined: the caller has one. `verb`: for
   * the audit.
   */
  refusalWithout(among: readonly Verb[], verb: Verb): WatchFanoutError | undefined {
    const { identity } = this.#call;
    for (const { name } of this.#resources()) {
      if (this.#context.authorizer.mayAny(identity, among, name)) return undefined;
    }
    this.#recordDenied({ verb, resource: everyResource, scope: { prefix: "" } });
    return etcdMethodDenied(identity);
  }

  /** Whether the caller may do all of this with each of these keys. Not audited. */
  mayAll(kinds: readonly AskedKeys["kind"][], keys: readonly Buffer[]): boolean {
    return keys.every((key) =>
      kinds.every((kind) => this.#allowing({ kind, key, rangeEnd: none }) !== undefined),
    );
  }

  /** Audits a call that is allowed by more than its scope: of a method, or for a lease. */
  recordAllowed(verb: Verb, scope: Access["scope"]): void {
    const access = { verb, resource: everyResource, scope };
    const { audit } = this.#context;
    if (audit === undefined || !isAudited(audit, access)) return;
    audit.record({ ...auditEntry(this.#call, this.#method, access, openToAll), code: undefined });
  }

  /** The refusal of the use of a lease. `isTooLarge`: its keys are too many to check. The first of each lease is audited. */
  refuseLease(verb: Verb, lease: bigint, isTooLarge: boolean): WatchFanoutError {
    const { identity } = this.#call;
    const name = leaseName(lease);
    if (this.#refusedLeases.has(lease)) this.#context.authorizer.countDenied(verb);
    else this.#recordDenied({ verb, resource: everyResource, scope: { key: name } });
    this.#refusedLeases.add(lease);
    dropOldest(this.#refusedLeases, maxRefusedLeases);
    const reason = isTooLarge
      ? `it has, or would have, more keys than are checked against a policy (${maxLeaseBytes} bytes of names, with 64 ` +
        "for each). Use several leases, with at most a thousand keys each."
      : "that needs the right to put and to delete each key that is attached to it, and for the names of these keys also to " +
        "get them. Use a lease of your own, or ask the operator of the service for a role that allows this.";
    return new WatchFanoutError(
      "PERMISSION_DENIED",
      `${JSON.stringify(identity.name)} may not use the ${name} in etcd: ${reason}`,
      { metadata: { verb, key: name } },
    );
  }

  /** The refusal of a grant whose caller chooses the id. It is audited. */
  refuseChosenLease(lease: bigint): WatchFanoutError {
    const name = leaseName(lease);
    this.#recordDenied({ verb: "put", resource: everyResource, scope: { key: name } });
    return new WatchFanoutError(
      "PERMISSION_DENIED",
      `${JSON.stringify(this.#call.identity.name)} may not choose the id of a lease (${name}), since others may be about to ` +
        "use it. Leave ID out of the request, or 0: the response has a new one.",
      { metadata: { verb: "put", key: name } },
    );
  }

  /** The refusal of a request that is not understood completely. It is audited. */
  refuseUnread(mayWrite: boolean): WatchFanoutError {
    const { identity } = this.#call;
    const verb = mayWrite ? "put" : "get";
    const access: Access = { verb, resource: everyResource, scope: { prefix: "" } };
    this.#recordDenied(access);
    return new WatchFanoutError(
      "PERMISSION_DENIED",
      `${JSON.stringify(identity.name)} may not make this request: it is not one message with the fields that etcd 3.6 ` +
        "knows, each of them once, so its keys are not certain.",
    );
  }

  /** Undefined: no resource has all of it with a right to it. */
  #allowing(asked: AskedKeys): Access | undefined {
    const { identity } = this.#call;
    const isWrite = asked.kind === "put" || asked.kind === "delete";
    for (const { keys } of this.#resources()) {
      // The service's own keys are of no resource: to change the id of the history ends every watch.
      if (isWrite && keys.own?.areIn(asked.key, asked.rangeEnd) === true) return undefined;
    }
    for (const { name: resource, keys } of this.#resources()) {
      const scope = scopeIn(keys.prefix, asked);
      if (scope === undefined) continue;
      const access = { verb: verbOf(asked), resource, scope };
      if (this.#context.authorizer.decide(identity, access).allowed) return access;
    }
    return undefined;
  }

  #deny(asked: AskedKeys): WatchFanoutError {
    const { identity } = this.#call;
    const verb = verbOf(asked);
    const access = { verb, resource: everyResource, scope: { key: keyText(asked.key) } };
    this.#recordDenied(access);
    return keysDenied(identity, verb, asked);
  }

  #recordDenied(access: Access): void {
    auditDenied(this.#context, this.#method, this.#call, access);
  }
}

/** The refusal of keys. It is the same whether or not there is a resource, or a key. */
function keysDenied(
  { name }: Identity,
  verb: Verb,
  { key, rangeEnd }: AskedKeys,
): WatchFanoutError {
  const first = keyText(key);
  const keys =
    rangeEnd.length === 0
      ? `the key ${JSON.stringify(first)}`
      : `the keys from ${JSON.stringify(first)} up to ${JSON.stringify(keyText(rangeEnd))}`;
  return new WatchFanoutError(
    "PERMISSION_DENIED",
    `${JSON.stringify(name)} may not ${verb} ${keys} in etcd. Request only what the policy allows, or ask the operator ` +
      "of the service for a role that allows this.",
    { metadata: { verb, key: first } },
  );
}

function verbOf({ kind, key, rangeEnd }: AskedKeys): Verb {
  if (kind !== "read") return kind;
  return isOneKey(key, rangeEnd) ? "get" : "list";
}
