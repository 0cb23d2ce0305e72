import { createHash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { dropOldest } from "../../base/drop-oldest.ts";
import { Gate, type GateBounds } from "../../base/gate.ts";
import type { UpstreamAnswer } from "../../etcd/client/upstream-call.ts";
import { attachedKeys, timeToLiveRequest } from "../../etcd/wire/checked-requests.ts";
import { timedOut } from "../../etcd/wire/error-texts.ts";
import type { Namespace } from "../../etcd/wire/namespace.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Verb } from "../../policy/access.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import { refused } from "../../server/calls/refusals.ts";
import { RefusedRequest } from "../../server/calls/server-call.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import { type KeyRights, leasedBytes, maxLeaseBytes } from "./key-rights.ts";

const timeToLivePath = "/etcdserverpb.Lease/LeaseTimeToLive";

/** A lease with more keys gets no further ones, by `leasedBytes`: with these it can still be used. */
const maxBytesToAttach = maxLeaseBytes / 2;

/** For how long a lease that the caller may not use is not asked about again, in milliseconds. */
const refusedMs = 1_000;

/**
 * For how long a lease that gets no more keys is not asked about again, in milliseconds: the keys that were attached since may be a
 * few again and again, but an answer may not have them yet.
 */
const fullMs = 100;

/** How long a question may wait for those before it, in milliseconds. */
const maxWaitMs = 3_000;

/** Number of questions at etcd at once: of all callers, and of one. */
const atOnce = { concurrent: 16, concurrentPerGroup: 4 };

/** Maximum number of verdicts that are remembered; the oldest make room. */
const maxVerdicts = 10_000;

/** What a call does with a lease. */
export interface LeaseUse {
  /** For the audit. */
  readonly verb: Verb;
  /** How long ago etcd may have said which keys the lease has, in milliseconds. */
  readonly maxAgeMs: number;
}

/*
 * How old the answer may be depends on what a key of another caller would suffer that is attached meanwhile: to be kept alive for
 * some seconds more, or to be deleted with the lease.
 */
export const keepingAlive: LeaseUse = { verb: "put", maxAgeMs: 10_000 };
export const timeToLive: LeaseUse = { verb: "get", maxAgeMs: 10_000 };
export const attaching: LeaseUse = { verb: "put", maxAgeMs: 1_000 };
export const revoking: LeaseUse = { verb: "delete", maxAgeMs: 0 };

/** A call of a caller that may not do everything. */
export interface LimitedCall {
  readonly call: Pick<RawCall, "identity" | "owner">;
  readonly metadata: IncomingHttpHeaders;
  readonly rights: KeyRights;
  /** Is aborted when the call has ended. */
  readonly signal: AbortSignal;
}

/** What a call wants to do with a lease. `bytes`: size of the keys that it attaches, by `leasedBytes`. */
interface AskedUse {
  readonly limited: LimitedCall;
  readonly lease: bigint;
  readonly use: LeaseUse;
  readonly bytes: number;
}

/** Asks etcd, with the metadata of a call. Never rejects. */
export type Ask = (
  path: string,
  metadata: IncomingHttpHeaders,
  request: Buffer,
  maxBytes?: number,
) => Promise<UpstreamAnswer>;

/** Questions to etcd of callers that may not do everything: few at once. */
export class Questions {
  readonly #gate: Gate;
  readonly #maxWaitMs: number;
  readonly #clock: Clock;

  /** `maxWaitMs`: how long one may wait for those before it, in milliseconds. */
  constructor(bounds: GateBounds, maxWaitMs: number, clock: Clock) {
    this.#gate = new Gate(bounds);
    this.#maxWaitMs = maxWaitMs;
    this.#clock = clock;
  }

  /** Does `work` in a turn of the caller. Rejects with a RefusedRequest if none comes, or with the reason of the signal. */
  inTurn<T>(
    { call, signal }: Pick<LimitedCall, "call" | "signal">,
    work: () => Promise<T>,
  ): Promise<T> {
    const expire = (): never => {
      throw new RefusedRequest(refused(status.UNAVAILABLE, timedOut));
    };
    const deadline = { clock: this.#clock, ms: this.#maxWaitMs, expire };
    return this.#gate.run(call.owner, { signal, deadline }, work);
  }
}

/** Whether a caller may use a lease. */
interface Verdict {
  /** When etcd was asked, in the clock's milliseconds. */
  readonly since: number;
  /** Of the policy. */
  readonly generation: number;
  readonly isAllowed: boolean;
  /** Size of its keys when etcd was asked, by `leasedBytes`; infinite: there are too many to check. */
  readonly askedBytes: number;
  /** The same, with those that were attached since. */
  bytes: number;
}

/**
 * Which leases limited callers may use: those of which they may put and delete every key, as etcd has it for its own users. So
 * etcd is asked for the keys of a lease, with the metadata of the call. It knows of every key, whichever process or client has
 * attached it, while a table of grants would be lost with a restart, and each worker and relay would have its own. A lease
 * without keys is for each caller that knows its id and may put a key.
 *
 * To ask costs etcd more than the call itself, so few are asked about at once, and a verdict is remembered for a while.
 */
export class LeaseRights {
  readonly #ask: Ask;
  readonly #clock: Clock;
  readonly #namespace: Namespace | undefined;
  readonly #questions: Questions;
  /** By a digest of the caller and the lease, the oldest first. */
  readonly #verdicts = new Map<string, Verdict>();

  /** `namespace`: of the keys that callers see. No caller may use a lease with a key outside it. */
  constructor(ask: Ask, clock: Clock, namespace?: Namespace) {
    this.#ask = ask;
    this.#clock = clock;
    this.#namespace = namespace;
    this.#questions = new Questions(atOnce, maxWaitMs, clock);
  }

  /** Number of verdicts that are remembered. */
  get size(): number {
    return this.#verdicts.size;
  }

  /**
   * Resolves to the refusal if the caller may not use the lease so; undefined: it may. `bytes`: size of the keys that it
   * attaches, by `leasedBytes`. Rejects with a RefusedRequest if etcd does not say it, or with the reason of the signal.
   */
  async refusal(
    limited: LimitedCall,
    lease: bigint,
    use: LeaseUse,
    bytes: number = 0,
  ): Promise<WireStatus | undefined> {
    const id = digestOf(limited.call.identity, lease);
    const asked = { limited, lease, use, bytes };
    const verdict = this.#known(id, asked) ?? (await this.#find(id, asked));
    const isFull = bytes > 0 && !mayAttach(verdict, bytes);
    if (!verdict.isAllowed || isFull) {
      const isTooLarge = isFull || verdict.askedBytes > maxLeaseBytes;
      return statusOf(limited.rights.refuseLease(use.verb, lease, isTooLarge));
    }
    verdict.bytes += bytes;
    return undefined;
  }

  /**
   * Asks for the time to live and the keys of a lease. Resolves to etcd's response, or to the refusal if the caller may not use the
   * lease and read all of its keys. Rejects as `refusal`.
   */
  async readKeys(limited: LimitedCall, lease: bigint): Promise<Buffer | WireStatus> {
    const id = digestOf(limited.call.identity, lease);
    const use = { ...timeToLive, maxAgeMs: 0 };
    const known = this.#known(id, { limited, lease, use, bytes: 0 });
    const found =
      known === undefined
        ? await this.#questions.inTurn(limited, () => this.#askAndJudge(id, limited, lease))
        : { verdict: known, keys: [], message: undefined };
    const { verdict, keys, message } = found;
    const isAllowed = verdict.isAllowed && limited.rights.mayAll(["read"], keys);
    if (isAllowed && message !== undefined) {
      return this.#namespace?.translationOf(timeToLivePath)?.response(message) ?? message;
    }
    return statusOf(limited.rights.refuseLease("get", lease, verdict.askedBytes > maxLeaseBytes));
  }

  #known(id: string, { limited, use, bytes }: AskedUse): Verdict | undefined {
    const verdict = this.#verdicts.get(id);
    if (verdict === undefined || verdict.generation !== limited.rights.generation) return undefined;
    const age = this.#clock.now() - verdict.since;
    if (age >= (verdict.isAllowed ? use.maxAgeMs : refusedMs)) return undefined;
    const isFull = bytes > 0 && !mayAttach(verdict, bytes);
    return isFull && age >= fullMs ? undefined : verdict;
  }

  #find(id: string, asked: AskedUse): Promise<Verdict> {
    const { limited, lease } = asked;
    return this.#questions.inTurn(limited, async () => {
      // Another call of the caller may have asked meanwhile.
      const known = this.#known(id, asked);
      return known ?? (await this.#askAndJudge(id, limited, lease)).verdict;
    });
  }

  async #askAndJudge(id: string, { metadata, rights }: LimitedCall, lease: bigint) {
    const since = this.#clock.now();
    const answer = await this.#ask(
      timeToLivePath,
      metadata,
      timeToLiveRequest(lease),
      maxLeaseBytes,
    );
    const { message, isTooLarge = false } = answer;
    const attached = message === undefined ? undefined : attachedKeys(message);
    // Without an answer nothing is known: etcd refuses the call itself for the same reason.
    if (attached === undefined && !isTooLarge) throw new RefusedRequest(statusOfAnswer(answer));
    const bytes = attached?.reduce((sum, key) => sum + leasedBytes(key), 0) ?? Infinity;
    const keys = this.#named(attached ?? []);
    const isAllowed =
      attached !== undefined &&
      keys.length === attached.length &&
      bytes <= maxLeaseBytes &&
      rights.mayAll(["put", "delete"], keys);
    const { generation } = rights;
    const verdict: Verdict = { since, generation, isAllowed, askedBytes: bytes, bytes };
    this.#verdicts.delete(id);
    this.#verdicts.set(id, verdict);
    dropOldest(this.#verdicts, maxVerdicts);
    return { verdict, keys, message };
  }

  /** The keys as callers name them, without those of other namespaces. */
  #named(keys: readonly Buffer[]): readonly Buffer[] {
    const namespace = this.#namespace;
    if (namespace === undefined) return keys;
    return keys.map((key) => namespace.inner(key)).filter((key) => key !== undefined);
  }
}

function mayAttach({ askedBytes, bytes: before }: Verdict, bytes: number): boolean {
  return askedBytes <= maxBytesToAttach && before + bytes <= maxLeaseBytes;
}

/** The status of an answer that is not OK, or can't be read. */
export function statusOfAnswer({ code, details }: UpstreamAnswer): WireStatus {
  const isOk = code === status.OK;
  return refused(isOk ? status.INTERNAL : code, isOk ? "etcd's answer can't be read" : details);
}

/** Each part has an end that it can't contain. */
function digestOf({ source, name, groups }: Identity, lease: bigint): string {
  const parts = JSON.stringify([source, name, groups, String(lease)]);
  return createHash("sha256").update(parts).digest("base64");
}
