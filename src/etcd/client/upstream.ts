import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { OutageLog } from "../../base/logger.ts";
import type { Namespace } from "../wire/namespace.ts";
import type { Bearer } from "./call-headers.ts";
import { defaultKeepalive, type Keepalive, type MemberCertificates } from "./member.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";
import {
  type ConnectInProcess,
  UpstreamMember,
  type UpstreamMemberDeps,
} from "./upstream-member.ts";

/** That no member can be reached. */
export interface UpstreamOutage {
  /** For how long it has lasted, in milliseconds. */
  readonly forMs: number;
  /** Why the last attempt failed. */
  readonly why: string;
}

/** How long an outage is known after the last attempt, in milliseconds: without calls nothing shows that it has ended. */
const knownForMs = 60_000;

/** After how long without a member that was left out all are known to be used, in milliseconds. */
const allUsedMs = 10_000;

export interface UpstreamOptions {
  /** At least one, such as "http://127.0.0.1:2379", all with the same scheme. */
  readonly endpoints: readonly string[];
  /** Present if the endpoints have the scheme https. */
  readonly certificates: MemberCertificates | undefined;
  /** Default: after 7 s, for 3 s, on connections with calls. */
  readonly keepalive?: Keepalive | undefined;
  /** Default: none. */
  readonly bearer?: Bearer | undefined;
  /** Connects to the only member, which is in this process. Default: by HTTP/2. */
  readonly connect?: ConnectInProcess | undefined;
  /** The keys that are passed on. Undefined: all. */
  readonly namespace?: Namespace | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A call that waits for a connection. */
interface WaitingCall {
  /** Whether it may go to any member. Default: it goes to the one that calls go to which need one. */
  readonly isSpread?: boolean | undefined;
  /** Whether it has ended, and needs no connection. */
  readonly isOver: () => boolean;
  /** Called once with a connection that has room for it, at once or later. */
  readonly open: (connection: UpstreamConnection) => void;
  /** Called instead if no member can be reached. It may have ended. */
  readonly fail: () => void;
}

/**
 * The members of etcd that calls are relayed to. Calls that may be answered by any of them go to each in turn, except to
 * those that can't be reached, have refused a call within a second, or have been silent for one. All others go to one member,
 * the first of the endpoints, until it fails: so responses that name a member, and calls that concern one, stay consistent.
 * Only then they go to the next.
 */
export class Upstream {
  /** The keys of etcd that its calls are about; undefined: all. The messages of a call are translated by its user. */
  readonly namespace: Namespace | undefined;
  /** Whether the members are another watch-fanout, which may have a namespace. */
  readonly isTier: boolean;
  readonly #memberOf: (endpoint: string) => UpstreamMember;
  #members: readonly UpstreamMember[];
  readonly #clock: Clock;
  readonly #outage: OutageLog;
  /** Of single members. */
  readonly #leftOut: OutageLog;
  /** When the first and the last attempt failed since one has succeeded, in the clock's milliseconds. */
  #failed: { readonly since: number; readonly at: number; readonly why: string } | undefined;
  /** The member that calls go to which need one. */
  #home: UpstreamMember;
  /** When a member was left out last, in the clock's milliseconds. Infinity: all are used. */
  #leftOutAt = Infinity;
  /** Number of times that a member was chosen for a call that any may answer. */
  #turns = 0;

  constructor(options: UpstreamOptions) {
    const { endpoints, certificates, keepalive = defaultKeepalive, bearer } = options;
    const { clock, logger } = options;
    this.#clock = clock;
    this.namespace = options.namespace;
    this.isTier = bearer !== undefined;
    this.#outage = new OutageLog(clock, logger);
    this.#leftOut = new OutageLog(clock, logger);
    const deps: UpstreamMemberDeps = {
      ...{ certificates, clock, keepalive, bearer, connect: options.connect },
      onUnresponsive: (member) => this.#leave(member, "it does not respond to keepalive pings"),
      onRefused: (member, why) => this.#leaveOut(member, why),
    };
    this.#memberOf = (endpoint) => new UpstreamMember(endpoint, deps);
    this.#members = endpoints.map(this.#memberOf);
    this.#home = this.#members[0] as UpstreamMember;
    this.#home.isInUse = true;
  }

  /** The endpoint of the member that calls go to which need one. */
  get endpoint(): string {
    return this.#home.endpoint;
  }

  /** The endpoints of all members. */
  get endpoints(): readonly string[] {
    return this.#members.map(({ endpoint }) => endpoint);
  }

  /** Whether calls are spread over several members. Other watch-fanouts have caches of their own, and are not as one. */
  get isSpread(): boolean {
    return this.#members.length > 1 && !this.isTier;
  }

  /**
   * Replaces the members by those of these endpoints, at least one. Calls continue at a member that is gone, until they end or
   * it closes them.
   */
  replaceMembers(endpoints: readonly string[]): void {
    const before = new Map(this.#members.map((member) => [member.endpoint, member]));
    this.#members = [...new Set(endpoints)].map(
      (endpoint) => before.get(endpoint) ?? this.#memberOf(endpoint),
    );
    const [first] = this.#members;
    if (first !== undefined && !this.#members.includes(this.#home)) {
      this.#moveTo(first, "it is no longer a member");
    }
    for (const member of before.values()) if (!this.#members.includes(member)) member.retire();
  }

  /** Number of connections to all members. */
  get connections(): number {
    return this.#members.reduce((sum, { connections }) => sum + connections, 0);
  }

  /** Undefined: a member can be reached, or no call has needed one for a minute. */
  get outage(): UpstreamOutage | undefined {
    const now = this.#clock.now();
    if (this.#failed === undefined || now - this.#failed.at >= knownForMs) return undefined;
    return { forMs: now - this.#failed.since, why: this.#failed.why };
  }

  /** A connection that has room for a call; undefined: no connection has room now, so call `connect`. */
  available(isSpread: boolean = false): UpstreamConnection | undefined {
    const connection =
      (isSpread && this.isSpread ? this.#next() : undefined) ?? this.#home.available();
    if (connection !== undefined) {
      this.#failed = undefined;
      this.#outage.ended("the etcd API reaches etcd again");
    }
    return connection;
  }

  /**
   * A connection that has room for a call, and that this is true for, of any member; of one that is left out only if there is
   * no other. Undefined: no connection suits.
   */
  find(suits: (connection: UpstreamConnection) => boolean): UpstreamConnection | undefined {
    if (!this.isSpread) return this.#home.available(suits);
    const isHeard = (each: UpstreamConnection): boolean => !each.isSilent && suits(each);
    let last: UpstreamConnection | undefined;
    for (const member of [this.#home, ...this.#members]) {
      const connection = member.available(isHeard);
      if (!member.isLeftOut && connection !== undefined) return connection;
      last ??= connection;
    }
    return last;
  }

  /** Waits for a connection with room for a call, for as long as the call needs one. */
  whenAvailable(call: WaitingCall): void {
    if (call.isOver()) return;
    const connection = this.available(call.isSpread);
    if (connection !== undefined) {
      call.open(connection);
      return;
    }
    const connected = call.isSpread === true && this.isSpread ? this.#connectAny() : this.connect();
    connected.then(
      // Another call may have taken the room.
      () => this.whenAvailable(call),
      () => call.fail(),
    );
  }

  /**
   * Waits until a connection has room for a call, to the first member that can be reached. Another call may have taken
   * the room when this resolves. Rejects with an Error if no member can be reached.
   */
  async connect(): Promise<void> {
    for (let failures = 0; ; ) {
      const member = this.#home;
      if (this.available() !== undefined) return;
      try {
        await member.connect();
      } catch (error) {
        const why = messageOf(error);
        this.#leave(member, why);
        if (++failures < this.#members.length) continue;
        const now = this.#clock.now();
        this.#failed = {
          since: this.outage === undefined ? now : now - this.outage.forMs,
          at: now,
          why,
        };
        const { endpoint } = member;
        this.#outage.failed("all members", { endpoint, why }, "the etcd API can't reach etcd");
        throw error;
      }
    }
  }

  /** Resolves when any member is connected. Rejects as `connect`. */
  #connectAny(): Promise<unknown> {
    const all = this.#members.map((member) => member.connect());
    return Promise.any(all).catch(() => this.connect());
  }

  /** Ends all calls. */
  close(): void {
    for (const member of this.#members) member.close();
  }

  /**
   * A connection to the next member in turn; to one that is left out, or silent, only if there is no other. Members without
   * one are connected for later calls. Undefined: none has room.
   */
  #next(): UpstreamConnection | undefined {
    const now = this.#clock.now();
    if (now - this.#leftOutAt >= allUsedMs) {
      this.#leftOutAt = Infinity;
      this.#leftOut.ended("the etcd API uses all members again");
    }
    let last: UpstreamConnection | undefined;
    for (const _ of this.#members) {
      const member = this.#members[this.#turns++ % this.#members.length];
      const connection = member?.available();
      if (member?.isLeftOut === true || connection?.isSilent === true) last ??= connection;
      else if (connection === undefined) member?.prepare();
      else return connection;
    }
    return last;
  }

  /** Others are preferred to this member for a while, also for the calls that need one member. */
  #leaveOut(member: UpstreamMember, why: string): void {
    member.leaveOut();
    this.#leftOutAt = this.#clock.now();
    const { endpoint } = member;
    this.#leftOut.failed(endpoint, { endpoint, why }, "the etcd API leaves a member out");
    const other = this.#members.find((each) => !each.isLeftOut && each.available() !== undefined);
    if (member === this.#home && other !== undefined) this.#moveTo(other, why);
  }

  /** Makes later calls go to the next member, unless this member was left before. */
  #leave(member: UpstreamMember, why: string): void {
    if (this.#members.length < 2 || this.#home !== member) return;
    const next = (this.#members.indexOf(member) + 1) % this.#members.length;
    this.#moveTo(this.#members[next] as UpstreamMember, why);
  }

  #moveTo(member: UpstreamMember, why: string): void {
    const [from, to] = [this.#home.endpoint, member.endpoint];
    this.#home.isInUse = false;
    this.#home = member;
    member.isInUse = true;
    const text = "the etcd API moves to another member";
    this.#outage.failed(`${from} to ${to}`, { from, to, why }, text);
  }
}
