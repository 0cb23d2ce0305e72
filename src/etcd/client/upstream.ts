import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import { OutageLog } from "../../base/outage-log.ts";
import type { Namespace } from "../wire/namespace.ts";
import type { Bearer } from "./endpoint.ts";
import { defaultKeepalive, type Keepalive, type MemberCertificates } from "./member.ts";
import type { UpstreamConnection } from "./upstream-connection.ts";
import { UpstreamMember } from "./upstream-member.ts";

/** That no member can be reached. */
export interface UpstreamOutage {
  /** For how long it has lasted, in milliseconds. */
  readonly forMs: number;
  /** Why the last attempt failed. */
  readonly why: string;
}

/** How long an outage is known after the last attempt, in milliseconds: without calls nothing shows that it has ended. */
const knownForMs = 60_000;

export interface UpstreamOptions {
  /** At least one, such as "http://127.0.0.1:2379", all with the same scheme. */
  readonly endpoints: readonly string[];
  /** Present if the endpoints have the scheme https. */
  readonly certificates: MemberCertificates | undefined;
  /** Default: after 7 s, for 3 s, on connections with calls. */
  readonly keepalive?: Keepalive | undefined;
  /** Default: none. */
  readonly bearer?: Bearer | undefined;
  /** The keys that are passed on. Undefined: all. */
  readonly namespace?: Namespace | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** A call that waits for a connection. */
interface WaitingCall {
  /** Whether it has ended, and needs no connection. */
  readonly isOver: () => boolean;
  /** Called once with a connection that has room for it, at once or later. */
  readonly open: (connection: UpstreamConnection) => void;
  /** Called instead if no member can be reached. It may have ended. */
  readonly fail: () => void;
}

/**
 * The members of etcd that calls are relayed to. All calls go to one member, the first of the endpoints, until it fails:
 * so responses that name a member, and calls that concern one, stay consistent. Only then they go to the next.
 */
export class Upstream {
  /** The keys of etcd that its calls are about; undefined: all. The messages of a call are translated by its user. */
  readonly namespace: Namespace | undefined;
  /** Whether the members are another watch-fanout, which may have a namespace. */
  readonly isTier: boolean;
  readonly #members: readonly UpstreamMember[];
  readonly #clock: Clock;
  readonly #outage: OutageLog;
  /** When the first and the last attempt failed since one has succeeded, in the clock's milliseconds. */
  #failed: { readonly since: number; readonly at: number; readonly why: string } | undefined;
  #preferred = 0;

  constructor(options: UpstreamOptions) {
    const { endpoints, certificates, keepalive = defaultKeepalive, bearer } = options;
    const { clock, logger } = options;
    this.#clock = clock;
    this.namespace = options.namespace;
    this.isTier = bearer !== undefined;
    this.#outage = new OutageLog(clock, logger);
    const leave = (member: UpstreamMember): void =>
      this.#leave(member, "it does not respond to keepalive pings");
    this.#members = endpoints.map(
      (endpoint) => new UpstreamMember(endpoint, certificates, clock, keepalive, bearer, leave),
    );
    this.#member.isInUse = true;
  }

  /** The endpoint of the member that calls go to. */
  get endpoint(): string {
    return this.#member.endpoint;
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
  available(): UpstreamConnection | undefined {
    const connection = this.#member.available();
    if (connection !== undefined) {
      this.#failed = undefined;
      this.#outage.ended("the etcd API reaches etcd again");
    }
    return connection;
  }

  /** Waits for a connection with room for a call, for as long as the call needs one. */
  whenAvailable(call: WaitingCall): void {
    if (call.isOver()) return;
    const connection = this.available();
    if (connection !== undefined) {
      call.open(connection);
      return;
    }
    this.connect().then(
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
      const member = this.#member;
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

  /** Ends all calls. */
  close(): void {
    for (const member of this.#members) member.close();
  }

  get #member(): UpstreamMember {
    return this.#members[this.#preferred] as UpstreamMember;
  }

  /** Makes later calls go to the next member, unless this member was left before. */
  #leave(member: UpstreamMember, why: string): void {
    if (this.#members.length < 2 || this.#member !== member) return;
    member.isInUse = false;
    this.#preferred = (this.#preferred + 1) % this.#members.length;
    this.#member.isInUse = true;
    const [from, to] = [member.endpoint, this.#member.endpoint];
    const text = "the etcd API moves to another member";
    this.#outage.failed(`${from} to ${to}`, { from, to, why }, text);
  }
}
