import { Metadata } from "@grpc/grpc-js";
import { AuthClient, KVClient, LeaseClient } from "etcd3";
import type { Logger } from "pino";
import { abortable } from "../../../base/abort.ts";
import type { Clock } from "../../../base/clock.ts";
import { upstreamUnavailable } from "../../../base/errors.ts";
import { TimeSliceScheduler } from "../../../base/time-slices.ts";
import {
  authNotEnabled,
  compacted,
  futureRevision,
  isServiceError,
  isStaleToken,
  isTransient,
  leaseNotFound,
  readError,
  says,
  UnsupportedEtcdError,
  writeError,
} from "./errors.ts";
import { defaultHistoryKey, HistoryMarker } from "./history-marker.ts";
import { type CallLimits, type EtcdTls, Member } from "./member.ts";
import type { RangeRequest, TxnRequest, TxnResponse, WatchCall } from "./messages.ts";
import type { DecodedRange } from "./responses.ts";

export interface EtcdClientOptions {
  /** As in "http://127.0.0.1:2379", at least one; `https:` for TLS. */
  readonly endpoints: readonly string[];
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  readonly tls?: EtcdTls | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The key that holds the id of etcd's history. Default: "/watchfanout/history". */
  readonly historyKey?: string | undefined;
  /** How long a call may take, in milliseconds, all its attempts together. Default 5,000. */
  readonly requestTimeoutMs?: number | undefined;
  /**
   * How many bytes one answer to a watch of past events may have. etcd bounds it by 1,000 revisions alone, and does
   * not cut it: beyond this the watch ends with HISTORY_LOST. Default 64 MiB, as much as an event window holds.
   */
  readonly pastAnswerBytes?: number | undefined;
  /** Numbers from 0 up to 1, to choose where to begin. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

const defaultPastAnswerBytes = 64 * 1024 ** 2;

/**
 * The connection to one etcd, shared by the storages of all resources.
 *
 * Reads go to another member where one does not answer. A write is sent once: if it can't have arrived
 * it is UPSTREAM_UNAVAILABLE, if its answer is lost OUTCOME_UNKNOWN. Before a member is first used it
 * is asked for its version.
 */
export class EtcdClient {
  /** @internal */
  readonly clock: Clock;
  /** @internal */
  readonly logger: Logger;
  /** @internal */
  readonly requestTimeoutMs: number;
  /**
   * For what comes in large answers and is waited for by nobody who is served now.
   *
   * @internal
   */
  readonly timeSlices: TimeSliceScheduler;
  /**
   * The id of the history, which all storages of this etcd share.
   *
   * @internal
   */
  readonly history: HistoryMarker;
  readonly #auth: EtcdClientOptions["auth"];
  readonly #members: readonly Member[];
  readonly #closing = new AbortController();
  /** Which member calls begin with: moved on when it fails. */
  #preferred: number;
  #token: Promise<string | undefined> | undefined;

  constructor(options: EtcdClientOptions) {
    const { endpoints, tls, random = Math.random } = options;
    const { pastAnswerBytes = defaultPastAnswerBytes } = options;
    if (endpoints.length === 0) throw new Error("An etcd client needs at least one endpoint.");
    this.clock = options.clock;
    this.logger = options.logger;
    this.timeSlices = new TimeSliceScheduler(options.clock);
    this.requestTimeoutMs = options.requestTimeoutMs ?? 5_000;
    this.history = new HistoryMarker(this, options.historyKey ?? defaultHistoryKey);
    this.#auth = options.auth;
    this.#members = endpoints.map((endpoint) => new Member(endpoint, tls, pastAnswerBytes));
    this.#preferred = Math.floor(random() * this.#members.length);
  }

  /**
   * Asks every member for its version. Those that do not answer now are asked before their first use.
   *
   * @throws UnsupportedEtcdError if one is too old
   */
  async checkVersions(): Promise<void> {
    const limits = this.#limits(undefined);
    const answers = this.#members.map((member) => member.supported(limits));
    for (const answer of await Promise.allSettled(answers)) {
      if (answer.status === "rejected" && answer.reason instanceof UnsupportedEtcdError) {
        throw answer.reason;
      }
    }
  }

  /**
   * Rejects with what etcd says (see `says`) if the revision is compacted or not there yet.
   *
   * @internal
   */
  range(request: RangeRequest, signal: AbortSignal | undefined): Promise<DecodedRange> {
    return this.onSomeMember((member, limits) => this.rangeOn(member, request, limits), signal);
  }

  /**
   * Reads from this member, with a new token if the one at hand has expired.
   *
   * @internal
   */
  rangeOn(member: Member, request: RangeRequest, limits: CallLimits): Promise<DecodedRange> {
    return this.#authenticated(member, limits, (metadata) =>
      member.range(request, metadata, limits),
    );
  }

  /**
   * `lease` is only named in the error. Aborting the signal ends the call only before the write is sent;
   * afterwards the call goes on to its outcome, whether or not anyone waits for it.
   *
   * @internal
   */
  async write(
    request: TxnRequest,
    lease: bigint,
    signal: AbortSignal | undefined,
  ): Promise<TxnResponse> {
    const member = await this.onSomeMember((member, limits) => this.#reach(member, limits), signal);
    signal?.throwIfAborted();
    const limits = this.#limits(undefined);
    try {
      return await this.#authenticated(member, limits, (metadata) =>
        new KVClient(member.callable(metadata, limits)).txn(request),
      );
    } catch (error) {
      throw writeError(error, member.endpoint, lease);
    }
  }

  /**
   * A new lease of at least so many seconds: etcd has a least of its own. Nothing is lost if its answer
   * is: a lease that nobody knows of expires.
   *
   * @internal
   */
  async grantLease(ttlSeconds: number): Promise<bigint> {
    const { ID } = await this.onSomeMember(
      (member, limits) =>
        this.#authenticated(member, limits, (metadata) =>
          new LeaseClient(member.callable(metadata, limits)).leaseGrant({ TTL: ttlSeconds }),
        ),
      undefined,
    );
    return BigInt(ID);
  }

  /**
   * Harmless if there is no such lease.
   *
   * @internal
   */
  async revokeLease(lease: bigint): Promise<void> {
    await this.onSomeMember(async (member, limits) => {
      try {
        await this.#authenticated(member, limits, (metadata) =>
          new LeaseClient(member.callable(metadata, limits)).leaseRevoke({ ID: String(lease) }),
        );
      } catch (error) {
        if (!isServiceError(error) || !says(error.details, leaseNotFound)) throw error;
      }
    }, undefined);
  }

  /**
   * Does something with one member after the other until one does it. That a revision is compacted, or
   * not there yet, is thrown as etcd says it.
   *
   * @internal
   */
  async onSomeMember<Result>(
    operation: (member: Member, limits: CallLimits) => Promise<Result>,
    signal: AbortSignal | undefined,
  ): Promise<Result> {
    const all = this.#limits(signal);
    // One member is given a second chance too: a change of leader is over in a moment.
    const attempts = Math.max(2, this.#members.length);
    for (let attempt = 1; ; attempt++) {
      const member = this.#member();
      const share = (all.deadline - Date.now()) / (attempts - attempt + 1);
      const limits = { deadline: Date.now() + Math.max(share, 1), signal: all.signal };
      try {
        await member.supported(limits);
        return await operation(member, limits);
      } catch (error) {
        if (this.#isOurs(error, signal)) throw error;
        if (isServiceError(error) && !isTransient(error)) {
          const isAnswer = says(error.details, compacted, futureRevision);
          throw isAnswer ? error : readError(error, member.endpoint);
        }
        this.failed(member);
        if (attempt >= attempts) throw readError(error, member.endpoint);
      }
    }
  }

  /**
   * Opens a stream of watches that ends if the member loses its leader. With `isPast`, for answers of many events,
   * each of which is decoded when it is asked for.
   *
   * @internal
   */
  async openWatch(member: Member, limits: CallLimits, isPast: boolean = false): Promise<WatchCall> {
    const metadata = await this.#metadata(member, limits);
    metadata.set("hasleader", "true");
    limits.signal?.throwIfAborted();
    const call = member.watch(metadata, isPast);
    const cancel = (): void => call.cancel();
    this.#closing.signal.addEventListener("abort", cancel);
    call.on("status", () => this.#closing.signal.removeEventListener("abort", cancel));
    return call;
  }

  /**
   * Begins with another member from now on, if there is one.
   *
   * @internal
   */
  failed(member: Member): void {
    if (this.#member() === member) this.#preferred = (this.#preferred + 1) % this.#members.length;
  }

  /** The next call authenticates anew. */
  forgetToken(): void {
    this.#token = undefined;
  }

  /** Ends all calls. Harmless when called twice. */
  async close(): Promise<void> {
    this.#closing.abort(upstreamUnavailable("The connection to etcd is closed."));
    for (const member of this.#members) member.close();
  }

  #member(): Member {
    const member = this.#members[this.#preferred];
    if (member === undefined) throw new Error("There is no member to call.");
    return member;
  }

  #limits(signal: AbortSignal | undefined): CallLimits {
    const closing = this.#closing.signal;
    return {
      deadline: Date.now() + this.requestTimeoutMs,
      signal: signal === undefined ? closing : AbortSignal.any([signal, closing]),
    };
  }

  /** Whether it is the caller who gave up, or we. */
  #isOurs(error: unknown, signal: AbortSignal | undefined): boolean {
    if (signal?.aborted === true && error === signal.reason) return true;
    return this.#closing.signal.aborted && error === this.#closing.signal.reason;
  }

  /** Makes sure that this member can be sent to, and resolves to it. */
  async #reach(member: Member, limits: CallLimits): Promise<Member> {
    if (await member.connected(limits)) {
      await this.#metadata(member, limits);
      return member;
    }
    throw upstreamUnavailable(
      `Nothing was written: the etcd at ${member.endpoint} can't be reached. Try again.`,
    );
  }

  /** Calls with the token at hand, and once more with a new one if it is refused. */
  async #authenticated<Result>(
    member: Member,
    limits: CallLimits,
    call: (metadata: Metadata) => Promise<Result>,
  ): Promise<Result> {
    const metadata = await this.#metadata(member, limits);
    try {
      return await call(metadata);
    } catch (error) {
      if (this.#auth === undefined || !isStaleToken(error)) throw error;
      this.forgetToken();
      return call(await this.#metadata(member, limits));
    }
  }

  async #metadata(member: Member, limits: CallLimits): Promise<Metadata> {
    const metadata = new Metadata();
    if (this.#auth === undefined) return metadata;
    this.#token ??= this.#authenticate(member, limits);
    const asked = this.#token;
    try {
      const token = await abortable(asked, limits.signal);
      if (token !== undefined) metadata.set("token", token);
      return metadata;
    } catch (error) {
      if (this.#token === asked && error !== limits.signal?.reason) this.#token = undefined;
      throw error;
    }
  }

  /** Resolves to no token where etcd asks for none. */
  async #authenticate(member: Member, { deadline }: CallLimits): Promise<string | undefined> {
    const { username: name, password } = this.#auth ?? { username: "", password: "" };
    try {
      const limits = { deadline, signal: this.#closing.signal };
      const auth = new AuthClient(member.callable(new Metadata(), limits));
      return (await auth.authenticate({ name, password })).token;
    } catch (error) {
      if (!isServiceError(error) || !says(error.details, authNotEnabled)) throw error;
      this.logger.warn(
        { username: name },
        "etcd does not ask for the user and password configured",
      );
      return undefined;
    }
  }
}
