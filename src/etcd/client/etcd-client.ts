import type { Metadata } from "@grpc/grpc-js";
import { type ICallable, KVClient } from "etcd3";
import type { Logger } from "pino";
import type { KeyPair } from "../../base/certificate-store.ts";
import type { Clock } from "../../base/clock.ts";
import { upstreamUnavailable } from "../../base/errors.ts";
import { Gate } from "../../base/gate.ts";
import { ServerReachability } from "../../base/server-reachability.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import { Turns } from "../../base/turns.ts";
import type { DecodedRange } from "../wire/range-response.ts";
import { AuthTokens } from "./auth-tokens.ts";
import { type Bearer, leftOutKeyHeader } from "./call-headers.ts";
import {
  compacted,
  futureRevision,
  isServiceError,
  isTransient,
  readError,
  says,
  UnsupportedEtcdError,
  writeError,
} from "./errors.ts";
import { defaultHistoryKey, HistoryMarker } from "./history-marker.ts";
import type { KeyRange } from "./key-range.ts";
import { LeaseCalls } from "./lease-calls.ts";
import {
  type CallLimits,
  type EtcdTls,
  type Keepalive,
  Member,
  type MemberCertificates,
  memberCertificates,
} from "./member.ts";
import { PassPacing } from "./pass-pacing.ts";
import {
  type KeepAliveCall,
  type RangeRequest,
  type TxnRequest,
  type TxnResponse,
  type WatchCall,
  writtenBy,
} from "./requests.ts";

export interface EtcdClientOptions {
  /** At least one, such as "http://127.0.0.1:2379"; `https:` for TLS. */
  readonly endpoints: readonly string[];
  readonly auth?: { readonly username: string; readonly password: string } | undefined;
  readonly tls?: EtcdTls | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The key that holds the id of etcd's history. Default: "/watchfanout/history". */
  readonly historyKey?: string | undefined;
  /** Whether that key is created where it does not exist. Default: true. */
  readonly createsHistoryKey?: boolean | undefined;
  /** Maximum duration of a call with all its attempts, in milliseconds. Default 5,000. */
  readonly requestTimeoutMs?: number | undefined;
  /** Default: after 7 s, for 3 s, on connections with calls. */
  readonly keepalive?: Keepalive | undefined;
  /**
   * The token of this process, if the endpoints are those of another watch-fanout. Default: they are etcd's.
   *
   * @internal
   */
  readonly bearer?: Bearer | undefined;
  /**
   * Maximum size of one response to a watch of past events, in bytes; of each of several watches that are read at the
   * same time a quarter (up to 4) or a sixteenth (up to 16). etcd bounds it to 1,000 revisions and does not split it; a
   * larger one ends the watch with HISTORY_LOST. Default 64 MiB, as much as an event window holds.
   */
  readonly pastResponseBytes?: number | undefined;
  /** Returns numbers from 0 up to 1, to choose the first member. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

const defaultPastResponseBytes = 64 * 1024 ** 2;

/**
 * The connection to one etcd, shared by the storages of all resources.
 *
 * Reads fall back to another member. A write is sent once: if it can't have arrived, it fails with
 * UPSTREAM_UNAVAILABLE; if its response is lost, with OUTCOME_UNKNOWN. A member's version is checked before its first
 * use.
 */
export class EtcdClient {
  /** @internal */
  readonly clock: Clock;
  /** @internal */
  readonly logger: Logger;
  /** @internal */
  readonly requestTimeoutMs: number;
  /**
   * Decodes large responses that no client's request waits for.
   *
   * @internal
   */
  readonly timeSlices: Turns;
  /**
   * Searches of the past for which etcd reads everything: one at a time.
   *
   * @internal
   */
  readonly pastSearches: Gate = new Gate({ concurrent: 1 });
  /**
   * Spaces the other reads of the past.
   *
   * @internal
   */
  readonly passPacing: PassPacing;
  /**
   * The id of the history, shared by all storages of this etcd.
   *
   * @internal
   */
  readonly history: HistoryMarker;
  /** @internal */
  readonly leases: LeaseCalls = new LeaseCalls((call, signal) => this.call(call, signal));
  /**
   * Ends the pauses of watches when a member is connected.
   *
   * @internal
   */
  readonly reachability: Reachability;
  readonly #tokens: AuthTokens;
  readonly #memberOf: (endpoint: string) => Member;
  #members: readonly Member[];
  readonly #certificates: MemberCertificates | undefined;
  readonly #closing = new AbortController();
  /** Index of the member that calls try first; advances when that member fails. */
  #preferred: number;

  constructor(options: EtcdClientOptions) {
    const { endpoints, tls, random = Math.random } = options;
    const { pastResponseBytes = defaultPastResponseBytes, keepalive, bearer } = options;
    if (endpoints.length === 0) throw new Error("An etcd client needs at least one endpoint.");
    this.clock = options.clock;
    this.logger = options.logger;
    this.timeSlices = new Turns(options.clock);
    this.passPacing = new PassPacing(options.clock);
    this.requestTimeoutMs = options.requestTimeoutMs ?? 5_000;
    const { historyKey = defaultHistoryKey, createsHistoryKey = true } = options;
    this.history = new HistoryMarker(this, historyKey, createsHistoryKey);
    this.#tokens = new AuthTokens(options.auth, options.logger, this.#closing.signal);
    const certificates = tls && memberCertificates(tls);
    this.#certificates = certificates;
    this.#memberOf = (endpoint) =>
      new Member(endpoint, certificates, pastResponseBytes, keepalive, bearer);
    this.#members = endpoints.map(this.#memberOf);
    const servers = () => this.#members;
    this.reachability = new ServerReachability({ servers, clock: this.clock });
    this.#preferred = Math.floor(random() * this.#members.length);
  }

  /**
   * Checks the version of every member. Members that do not respond are checked before their first use.
   *
   * @throws UnsupportedEtcdError if one is too old
   */
  async checkVersions(): Promise<void> {
    const limits = this.#limits(undefined);
    const checks = this.#members.map((member) => member.supported(limits));
    for (const check of await Promise.allSettled(checks)) {
      if (check.status === "rejected" && check.reason instanceof UnsupportedEtcdError) {
        throw check.reason;
      }
    }
  }

  /**
   * Rejects with etcd's own error (see `says`) if the revision is compacted or in the future.
   *
   * @internal
   */
  range(request: RangeRequest, signal: AbortSignal | undefined): Promise<DecodedRange> {
    return this.onSomeMember(
      (member, limits) => this.rangeOn(member, request, limits),
      signal,
      request,
    );
  }

  /**
   * Reads from this member, with a new token if the current one has expired.
   *
   * @internal
   */
  rangeOn(member: Member, request: RangeRequest, limits: CallLimits): Promise<DecodedRange> {
    return this.#tokens.call(member, limits, (metadata) => {
      this.#leaveOutHistory(metadata);
      return member.range(request, metadata, limits);
    });
  }

  /**
   * `lease` is only for the error message. Aborting the signal ends the call only before the write is sent; afterwards
   * the call continues to its outcome.
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
      return await this.#tokens.call(member, limits, (metadata) =>
        new KVClient(member.callable(metadata, limits)).txn(request),
      );
    } catch (error) {
      throw writeError(error, member.endpoint, lease, writtenBy(request));
    }
  }

  /**
   * Calls `operation` with one member after the other until it succeeds. `range`: what it reads. If a revision is compacted or in the future,
   * rejects with etcd's own error.
   *
   * @internal
   */
  async onSomeMember<Result>(
    operation: (member: Member, limits: CallLimits) => Promise<Result>,
    signal: AbortSignal | undefined,
    range?: KeyRange,
  ): Promise<Result> {
    const all = this.#limits(signal);
    // A single member is tried twice: a change of the leader is short.
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
          const isAboutRevision = says(error.details, compacted, futureRevision);
          throw isAboutRevision ? error : readError(error, member.endpoint, range);
        }
        this.failed(member);
        if (attempt >= attempts) throw readError(error, member.endpoint, range);
      }
    }
  }

  /**
   * Calls some member with an etcd3 raw client, with the token.
   *
   * @internal
   */
  call<Result>(
    call: (member: ICallable<Member>) => Promise<Result>,
    signal?: AbortSignal,
  ): Promise<Result> {
    return this.onSomeMember(
      (member, limits) =>
        this.#tokens.call(member, limits, (metadata) => call(member.callable(metadata, limits))),
      signal,
    );
  }

  /** The endpoints of the members. */
  get endpoints(): readonly string[] {
    return this.#members.map(({ endpoint }) => endpoint);
  }

  /**
   * Replaces the members by those of these endpoints, at least one. Calls continue at a member that is gone, until they end or
   * it closes them.
   *
   * @internal
   */
  replaceMembers(endpoints: readonly string[]): void {
    const preferred = this.#member();
    const before = this.#members;
    this.#members = endpoints.map(
      (endpoint) =>
        before.find((member) => member.endpoint === endpoint) ?? this.#memberOf(endpoint),
    );
    this.#preferred = Math.max(0, this.#members.indexOf(preferred));
    // What has begun on its connections continues.
    for (const member of before) if (!this.#members.includes(member)) member.close();
  }

  /**
   * Opens a watch stream that ends if the member loses its leader. `past`: it is one of this many watches of past events,
   * whose responses have many events, which are decoded one by one when they are read.
   *
   * @internal
   */
  async openWatch(member: Member, limits: CallLimits, past?: number): Promise<WatchCall> {
    const metadata = await this.#tokens.metadata(member, limits);
    metadata.set("hasleader", "true");
    this.#leaveOutHistory(metadata);
    limits.signal?.throwIfAborted();
    const call = member.watch(metadata, past);
    const cancel = (): void => call.cancel();
    this.#closing.signal.addEventListener("abort", cancel);
    call.on("status", () => this.#closing.signal.removeEventListener("abort", cancel));
    return call;
  }

  /**
   * Opens a stream of lease renewals at some member, which ends if that loses its leader.
   *
   * @internal
   */
  openKeepAlive(): Promise<{ readonly member: Member; readonly call: KeepAliveCall }> {
    return this.onSomeMember(async (member, limits) => {
      const metadata = await this.#tokens.metadata(member, limits);
      metadata.set("hasleader", "true");
      const call = member.keepAlive(metadata);
      return { member, call };
    }, undefined);
  }

  /**
   * Makes later calls try another member first, if there is one.
   *
   * @internal
   */
  failed(member: Member): void {
    if (this.#member() === member) this.#preferred = (this.#preferred + 1) % this.#members.length;
  }

  /**
   * Replaces the client certificate and its key, for new connections. Throws an Error with a sentence if they are
   * unusable, or if the client was made without one.
   */
  replaceCertificate(pair: KeyPair): void {
    if (this.#certificates?.hasClientCertificate !== true) {
      throw new Error("The etcd client has no certificate to replace.");
    }
    this.#certificates.store.replacePair(pair);
  }

  /** Replaces the authorities of etcd's certificates, for new connections. Throws as `replaceCertificate`. */
  replaceAuthorities(authorities: Buffer): void {
    if (this.#certificates === undefined) throw new Error("The etcd client has no TLS.");
    this.#certificates.store.replaceAuthorities(authorities);
  }

  /** The next call authenticates again. */
  forgetToken(): void {
    this.#tokens.forget();
  }

  /** Ends all calls. Idempotent. */
  async close(): Promise<void> {
    this.#closing.abort(upstreamUnavailable("The connection to etcd is closed."));
    for (const member of this.#members) member.close();
  }

  #member(): Member {
    const member = this.#members[this.#preferred];
    if (member === undefined) throw new Error("There is no member to call.");
    return member;
  }

  #leaveOutHistory(metadata: Metadata): void {
    metadata.set(leftOutKeyHeader, this.history.key.toString("base64"));
  }

  #limits(signal: AbortSignal | undefined): CallLimits {
    const closing = this.#closing.signal;
    return {
      deadline: Date.now() + this.requestTimeoutMs,
      signal: signal === undefined ? closing : AbortSignal.any([signal, closing]),
    };
  }

  /** Whether the caller or `close` ended the call. */
  #isOurs(error: unknown, signal: AbortSignal | undefined): boolean {
    if (signal?.aborted === true && error === signal.reason) return true;
    return this.#closing.signal.aborted && error === this.#closing.signal.reason;
  }

  /** Resolves to the member once it is connected. */
  async #reach(member: Member, limits: CallLimits): Promise<Member> {
    if (await member.connected(limits)) {
      await this.#tokens.metadata(member, limits);
      return member;
    }
    throw upstreamUnavailable(
      `Nothing was written: the etcd at ${member.endpoint} can't be reached. Try again.`,
    );
  }
}
