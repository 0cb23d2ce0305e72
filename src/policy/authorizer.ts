import type { Identity } from "../identity/identity.ts";
import { type Access, fullAccess, readVerbs, type Verb } from "./access.ts";
import type { Policy } from "./policy.ts";

/** Whether a call is allowed. */
export interface Decision {
  readonly allowed: boolean;
  /** The name of the rule that allows it; undefined if it is denied, and without a policy. */
  readonly rule: string | undefined;
}

/** The decision on what is allowed by no rule, but to all. */
export const openToAll: Decision = { allowed: true, rule: undefined };

/** The decision on what no rule allows. */
export const denied: Decision = { allowed: false, rule: undefined };

/**
 * Decides what calls are allowed, by the current policy. Without a policy every call is allowed; once there is one, only
 * what it grants.
 */
export class Authorizer {
  #policy: Policy | undefined;
  #generation = 0;
  readonly #onChange: (() => void)[] = [];
  readonly #denied: Record<Verb, number> = { get: 0, list: 0, watch: 0, put: 0, delete: 0 };
  #revoked = 0;

  /** Without a policy until `replace`. */
  constructor(policy?: Policy) {
    this.#policy = policy;
  }

  /** Whether there is a policy. */
  get hasPolicy(): boolean {
    return this.#policy !== undefined;
  }

  /** Changes with every `replace`: a decision of an older generation may not hold any more. */
  get generation(): number {
    return this.#generation;
  }

  /** Number of calls that were denied, by what they asked for. */
  get denied(): Readonly<Record<Verb, number>> {
    return this.#denied;
  }

  /** Number of streams that ended because a changed policy no longer allowed them. */
  get revoked(): number {
    return this.#revoked;
  }

  /** Counts a denied call. */
  countDenied(verb: Verb): void {
    this.#denied[verb]++;
  }

  /** Counts a stream that ended because of a changed policy. */
  countRevoked(): void {
    this.#revoked++;
  }

  /**
   * Replaces the policy, then notifies the listeners. Give a server its first policy before it starts: a stream that
   * opens without one does not retain what a later policy would have to check.
   */
  replace(policy: Policy): void {
    this.#policy = policy;
    this.#generation++;
    for (const listener of this.#onChange) listener();
  }

  /** Calls `listener` after each change of the policy. Listeners live as long as the Authorizer. */
  onChange(listener: () => void): void {
    this.#onChange.push(listener);
  }

  decide(identity: Identity, access: Access): Decision {
    if (this.#policy === undefined) return openToAll;
    const rule = this.#policy.allowing(identity, access);
    return rule === undefined ? denied : { allowed: true, rule: rule.name };
  }

  /** Whether the identity may read anything of the resource. */
  mayRead(identity: Identity, resource: string): boolean {
    return this.mayAny(identity, readVerbs, resource);
  }

  /** Whether the identity may do something with anything of the resource, with one of these verbs. */
  mayAny(identity: Identity, verbs: readonly Verb[], resource: string): boolean {
    return this.#policy === undefined || this.#policy.mayAny(identity, verbs, resource);
  }

  /** The first of several accesses that is denied; undefined: all are allowed. */
  firstDenied(identity: Identity, access: Access | readonly Access[]): Access | undefined {
    const isOne = "verb" in access;
    if (isOne) return this.decide(identity, access).allowed ? undefined : access;
    return access.find((each) => !this.decide(identity, each).allowed);
  }

  /**
   * Whether the identity may not do everything.
   *
   * @internal
   */
  isLimited(identity: Identity): boolean {
    return this.hasPolicy && this.firstDenied(identity, fullAccess) !== undefined;
  }

  /** Whether the identity may know that the resource exists: it has any right on it. */
  mayKnow(identity: Identity, resource: string): boolean {
    return this.#policy === undefined || this.#policy.concerns(identity, resource);
  }
}
