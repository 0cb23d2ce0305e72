import { createHash } from "node:crypto";
import type { Clock } from "../../base/clock.ts";
import { dropOldest } from "../../base/drop-oldest.ts";
import { hasReason, toError, WatchFanoutError } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import type { Identity } from "../../identity/identity.ts";
import { type Access, everyResource, leaseDenied, type Verb, verbs } from "../../policy/access.ts";
import type { Authorizer } from "../../policy/authorizer.ts";
import { endedLease } from "../../storage/lease-renewals.ts";
import type { LeaseState, Leases } from "../../storage/store.ts";
import type { CallOwner } from "../limits/callers.ts";

/** Number of questions to the store at once: of all callers, and of one. */
const atOnce = { concurrent: 16, concurrentPerGroup: 4 };

/** How long a question may wait for those before it, in milliseconds. */
const maxWaitMs = 3_000;

/** Number of leases of one call that are looked at in one turn of the event loop. */
const leasesPerTurn = 16;

/** For how long a lease that a caller may not use is not asked about again, in milliseconds. */
const refusedMs = 1_000;

/** Maximum number of verdicts that are remembered; the oldest make room. */
const maxVerdicts = 10_000;

/** Maximum size of the names of the objects of a lease that a limited caller may use, with 64 bytes for each. */
const maxCheckedBytes = 256 * 1024;

/** What a call does with a lease. */
export interface LeaseUse {
  /** For the text of a refusal. */
  readonly what: string;
  /** For the audit. */
  readonly verb: Verb;
  /** What the caller must be allowed to do with each attached object. */
  readonly needs: readonly Verb[];
  /** With one of these rights on any object a caller may use a lease without objects. */
  readonly among: readonly Verb[];
  /**
   * How long ago the store may have said what is attached, in milliseconds. It depends on what an object of another caller
   * would suffer that is attached meanwhile: to be kept alive for some seconds more, or to be deleted with the lease.
   */
  readonly maxAgeMs: number;
}

export const keepingAlive: LeaseUse = {
  ...{ what: "keep alive", verb: "put", needs: ["put"], among: ["put"], maxAgeMs: 10_000 },
};
export const attaching: LeaseUse = {
  ...{ what: "attach objects to", verb: "put", needs: ["put", "delete"], among: ["put"] },
  maxAgeMs: 1_000,
};
export const revoking: LeaseUse = {
  ...{ what: "revoke", verb: "delete", needs: ["delete"], among: ["put", "delete"], maxAgeMs: 0 },
};
export const reading: LeaseUse = {
  ...{ what: "read", verb: "get", needs: ["get"], among: verbs, maxAgeMs: 0 },
};

/** The caller that uses a lease. */
interface LeaseUser {
  readonly identity: Identity;
  readonly owner: CallOwner;
  readonly signal: AbortSignal;
}

interface LeaseAuthorizerOptions {
  /** Undefined: the server has no store. Then no limited caller may use a lease. */
  readonly leases: Leases | undefined;
  readonly authorizer: Authorizer;
  readonly clock: Clock;
  /** Of the service, by name. */
  readonly resources: ReadonlyMap<string, unknown>;
}

/** What a caller may do with everything that is attached to a lease. */
interface Verdict {
  /** When the store was asked, in the clock's milliseconds. */
  readonly since: number;
  /** Of the policy. */
  readonly generation: number;
  readonly allowed: ReadonlySet<Verb>;
  /** Whether it has too many objects to check. */
  readonly isTooLarge: boolean;
}

/**
 * Which leases callers may use that may not do everything. The store is asked what is attached to a lease, as only that
 * knows it, whichever process has attached it. Few questions are asked at once, and the answers are remembered for a while.
 */
export class LeaseAuthorizer {
  readonly #options: LeaseAuthorizerOptions;
  readonly #gate = new Gate(atOnce);
  /** By a digest of the caller and the lease, the oldest first. */
  readonly #verdicts = new Map<string, Verdict>();

  constructor(options: LeaseAuthorizerOptions) {
    this.#options = options;
  }

  /** Number of verdicts that are remembered. */
  get size(): number {
    return this.#verdicts.size;
  }

  /** Whether a caller has one of these rights on any object. */
  mayAny(identity: Identity, among: readonly Verb[]): boolean {
    const { authorizer, resources } = this.#options;
    if (!authorizer.isLimited(identity)) return true;
    for (const name of resources.keys()) {
      if (authorizer.mayAny(identity, among, name)) return true;
    }
    return false;
  }

  /**
   * Resolves to the refusal if the caller may not use the lease so; undefined: it may. Rejects with LEASE_NOT_FOUND, with
   * UPSTREAM_UNAVAILABLE and OVERLOADED if it can't be found out, and with the reason of the signal.
   */
  async refusal(
    user: LeaseUser,
    lease: bigint,
    use: LeaseUse,
  ): Promise<WatchFanoutError | undefined> {
    const { identity } = user;
    if (!this.#options.authorizer.isLimited(identity)) return undefined;
    if (!this.mayAny(identity, use.among)) return leaseDenied(identity, use, lease, false);
    const id = digestOf(identity, lease);
    const { allowed, isTooLarge } =
      this.#known(id, use) ?? (await this.#find(id, user, lease, use));
    const mayAll = use.needs.every((verb) => allowed.has(verb));
    return mayAll ? undefined : leaseDenied(identity, use, lease, isTooLarge);
  }

  /** Throws the refusal, with which the call is denied, if its caller may not use the lease so; and what `refusal` rejects with. */
  async check(
    call: LeaseUser & { readonly deny: () => void },
    lease: bigint,
    use: LeaseUse,
  ): Promise<void> {
    const refusal = await this.refusal(call, lease, use);
    if (refusal === undefined) return;
    call.deny();
    throw refusal;
  }

  /**
   * As `refusal`, for each of up to thousands of leases, with what it rejects with. All together wait no longer than one of
   * them: what is not found out by then is refused.
   */
  async refusals(
    user: LeaseUser,
    leases: readonly bigint[],
    use: LeaseUse,
  ): Promise<readonly (Error | undefined)[]> {
    const { clock } = this.#options;
    const lateAt = clock.now() + maxWaitMs;
    const refusals: (Error | undefined)[] = [];
    for (let i = 0; i < leases.length && clock.now() < lateAt; i += leasesPerTurn) {
      const some = leases.slice(i, i + leasesPerTurn);
      const found = some.map((lease) => this.refusal(user, lease, use).catch(sharedError));
      refusals.push(...(await Promise.all(found)));
      await new Promise<void>((resolve) => clock.setImmediate(resolve));
      user.signal.throwIfAborted();
    }
    const left = leases.length - refusals.length;
    if (left > 0) refusals.push(...new Array<Error>(left).fill(tooManyQuestions()));
    return refusals;
  }

  /**
   * The refusal if the caller may not use a lease so, to which this is attached; undefined: it may. `state`: undefined if that
   * is not known.
   */
  refusalOfState(
    identity: Identity,
    lease: bigint,
    use: LeaseUse,
    state: LeaseState | undefined,
  ): WatchFanoutError | undefined {
    if (!this.#options.authorizer.isLimited(identity)) return undefined;
    const { allowed, isTooLarge } = this.#judge(identity, state);
    const mayAll = use.needs.every((verb) => allowed.has(verb));
    return mayAll ? undefined : leaseDenied(identity, use, lease, isTooLarge);
  }

  #judge(
    identity: Identity,
    state: LeaseState | undefined,
  ): Pick<Verdict, "allowed" | "isTooLarge"> {
    const { authorizer } = this.#options;
    const { objects, others } = state ?? { objects: [], others: 1 };
    const isTooLarge = objects.reduce((sum, { key }) => sum + key.length + 64, 0) > maxCheckedBytes;
    const mayAll = (verb: Verb): boolean =>
      objects.every(
        ({ resource, key }) =>
          authorizer.decide(identity, { verb, resource, scope: { key } }).allowed,
      );
    const allowed = new Set(others > 0 || isTooLarge ? [] : verbs.filter(mayAll));
    return { allowed, isTooLarge };
  }

  #known(id: string, { needs, maxAgeMs }: LeaseUse): Verdict | undefined {
    const { clock, authorizer } = this.#options;
    const verdict = this.#verdicts.get(id);
    if (verdict === undefined || verdict.generation !== authorizer.generation) return undefined;
    const isAllowed = needs.every((verb) => verdict.allowed.has(verb));
    const maxMs = isAllowed ? maxAgeMs : refusedMs;
    return clock.now() - verdict.since < maxMs ? verdict : undefined;
  }

  #find(id: string, user: LeaseUser, lease: bigint, use: LeaseUse): Promise<Verdict> {
    const { clock } = this.#options;
    const { owner, signal } = user;
    const expire = (): never => {
      throw tooManyQuestions();
    };
    const bounds = { signal, deadline: { clock, ms: maxWaitMs, expire } };
    // Another call of the caller may have asked meanwhile.
    const find = async () => this.#known(id, use) ?? (await this.#ask(id, user, lease));
    return this.#gate.run(owner, bounds, find);
  }

  async #ask(id: string, { identity, signal }: LeaseUser, lease: bigint): Promise<Verdict> {
    const { leases, clock, authorizer } = this.#options;
    const { generation } = authorizer;
    const since = clock.now();
    // Without the leases nothing is known of what is attached.
    const state = await leases?.timeToLive(lease, true, signal);
    const verdict: Verdict = { since, generation, ...this.#judge(identity, state) };
    this.#verdicts.delete(id);
    this.#verdicts.set(id, verdict);
    dropOldest(this.#verdicts, maxVerdicts);
    return verdict;
  }
}

/** What a request that needs a right for what is attached asks for, in the audit. */
export function leaseAccess(verb: Verb, key: string): Access {
  return { verb, resource: everyResource, scope: key === "" ? { prefix: "" } : { key } };
}

/** Each part has an end that it can't contain. */
function digestOf({ source, name, groups }: Identity, lease: bigint): string {
  const parts = JSON.stringify([source, name, groups, String(lease)]);
  return createHash("sha256").update(parts).digest("base64");
}

/** One error for all leases that have ended, since each different one is encoded by itself. */
function sharedError(error: unknown): Error {
  return hasReason(error, "LEASE_NOT_FOUND") ? endedLease : toError(error);
}

function tooManyQuestions(): WatchFanoutError {
  return new WatchFanoutError(
    "OVERLOADED",
    `What is attached to the lease was not asked for within ${maxWaitMs / 1_000} s, since many leases are used by callers ` +
      "with limited rights. Try again, or use fewer leases, each for several objects.",
  );
}
