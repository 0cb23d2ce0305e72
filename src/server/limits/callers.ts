import { isIPv4, isIPv6 } from "node:net";
import type { Clock } from "../../base/clock.ts";
import { GroupedOwner } from "../../base/fair-queue.ts";
import { Rate } from "../../base/rate.ts";
import { ownText } from "../../base/text-memory.ts";
import type { Identity } from "../../identity/identity.ts";

/** Number of callers that are remembered although they have no connection, stream or request now. */
const defaultMaxIdle = 10_000;

/** The rates of each caller; 0: no limit. */
export interface CallerRates {
  /** New watches per second. */
  readonly maxWatchRatePerIdentity: number;
  /** Bytes sent per second. */
  readonly maxSendRatePerIdentity: number;
  /** Leases granted per second. */
  readonly maxLeaseGrantRatePerIdentity: number;
  /** Leases renewed per second. */
  readonly maxLeaseRenewalRatePerIdentity: number;
}

/** The client that makes a call: what limits count against, and what turns are shared between. */
export class Caller {
  /** What error texts call it, such as `the identity "alice"`. */
  readonly title: string;
  /** The rate of new watches; undefined: no limit. */
  readonly watchRate: Rate | undefined;
  /** The rate of bytes sent; undefined: no limit. */
  readonly sendRate: Rate | undefined;
  /** The rate of leases granted; undefined: no limit. */
  readonly grantRate: Rate | undefined;
  /** The rate of leases renewed; undefined: no limit. */
  readonly renewalRate: Rate | undefined;
  /** The rate of calls that it may cancel on connections of proxies; undefined: it has cancelled none lately. */
  cancelRate: Rate | undefined;
  readonly #owners = new WeakMap<object, CallOwner>();
  /** Connections that it has opened. */
  connections = 0;
  /** Open streams. */
  streams = 0;
  /** Requests in progress, those that wait included. */
  requests = 0;
  /** Leases that this server has granted and that have not ended, as far as it knows. */
  leases = 0;

  constructor(clock: Clock, title: string, rates: CallerRates) {
    this.title = title;
    const rateOf = (perSecond: number): Rate | undefined =>
      perSecond === 0 ? undefined : new Rate(clock, perSecond);
    this.watchRate = rateOf(rates.maxWatchRatePerIdentity);
    this.sendRate = rateOf(rates.maxSendRatePerIdentity);
    this.grantRate = rateOf(rates.maxLeaseGrantRatePerIdentity);
    this.renewalRate = rateOf(rates.maxLeaseRenewalRatePerIdentity);
  }

  /** Whether it has something, or has taken something lately, that would be forgotten with it. */
  get isInUse(): boolean {
    const { connections, streams, requests, leases } = this;
    if (connections > 0 || streams > 0 || requests > 0 || leases > 0) return true;
    const rates = [
      this.watchRate,
      this.sendRate,
      this.grantRate,
      this.renewalRate,
      this.cancelRate,
    ];
    return rates.some((rate) => rate?.isFull === false);
  }

  /** Its calls on one connection. */
  on(connection: object): CallOwner {
    let owner = this.#owners.get(connection);
    if (owner === undefined) {
      owner = new CallOwner(this, connection);
      this.#owners.set(connection, owner);
    }
    return owner;
  }
}

/** The calls of one caller on one connection. Callers take turns, and so do the connections of each. */
export class CallOwner extends GroupedOwner {
  readonly caller: Caller;
  readonly connection: object;
  /** Whether its connection is below the limit of its caller. */
  isAdmitted = false;

  /** For `Caller`. */
  constructor(caller: Caller, connection: object) {
    super(caller);
    this.caller = caller;
    this.connection = connection;
  }
}

/** The caller that an owner belongs to; undefined: it is not of a call. */
export function callerOf(owner: object): Caller | undefined {
  return owner instanceof CallOwner ? owner.caller : undefined;
}

/** What is known of a connection. */
interface Connected {
  /** The host of its client, as `hostOf` returns it. */
  readonly host: string;
  /** The owner of its last call; before the first: that of its host. */
  last: CallOwner;
  /** The caller of its first call, if the connection counts for that. */
  first: Caller | undefined;
  /** Whether several identities have used it, as those behind a proxy do. */
  isShared: boolean;
  /** Whether it is one of a proxy that is trusted to forward the identities of its clients. It counts for none of them. */
  isForwarder: boolean;
}

/** The call whose caller is asked for. */
export interface IdentifiedCall {
  readonly connection: object;
  readonly identity: Identity;
  /** The client's IP address and port. */
  readonly address: string;
}

/**
 * The callers of a server. An authenticated call belongs to its identity, by name. An anonymous one belongs to the host of
 * its connection: without that all anonymous clients would share one allowance, and one of them could use it up.
 */
export class Callers {
  readonly #clock: Clock;
  readonly #rates: CallerRates;
  readonly #maxIdle: number;
  /** By identity or host. Those that were found idle last come first. */
  readonly #known = new Map<string, Caller>();
  readonly #connections = new WeakMap<object, Connected>();
  /** Number of callers that have connections. */
  #connected = 0;
  /** Number of open connections on which a proxy has forwarded several identities. */
  #sharedForwarders = 0;

  constructor(clock: Clock, rates: CallerRates, maxIdle: number = defaultMaxIdle) {
    this.#clock = clock;
    this.#rates = rates;
    this.#maxIdle = maxIdle;
  }

  /**
   * Whether several callers have connections, or share one of a proxy: then each has smaller portions of a turn, so that
   * none waits for long.
   */
  get hasSeveral(): boolean {
    return this.#connected > 1 || this.#sharedForwarders > 0;
  }

  /** Number of callers that are known. */
  get size(): number {
    return this.#known.size;
  }

  /** The callers that are known. */
  [Symbol.iterator](): IterableIterator<Caller> {
    return this.#known.values();
  }

  /** A connection begins. `address`: the IP address of its client; undefined: it is closed, or not known. */
  connected(connection: object, address: string | undefined): void {
    const host = hostOf(address ?? "");
    this.#connections.set(connection, {
      ...{ host, last: this.#hostCaller(host).on(connection), first: undefined },
      ...{ isShared: false, isForwarder: false },
    });
  }

  /** A connection that has begun is closed. Idempotent. */
  closed(connection: object): void {
    const known = this.#connections.get(connection);
    if (known === undefined) return;
    this.#connections.delete(connection);
    if (known.isForwarder && known.isShared) this.#sharedForwarders--;
    if (known.first === undefined) return;
    known.first.connections--;
    if (known.first.connections === 0) this.#connected--;
  }

  /** A connection is one of a trusted proxy: it counts for no identity, and is expected to have calls of many. */
  markForwarder(connection: object): void {
    const known = this.#connections.get(connection);
    if (known !== undefined) known.isForwarder = true;
  }

  /** Whether a connection is one of a trusted proxy. */
  isForwarder(connection: object): boolean {
    return this.#connections.get(connection)?.isForwarder === true;
  }

  /** The owner of a call that is not authenticated yet, whose identity a trusted proxy forwards. */
  forwardedOwner(connection: object, name: string): CallOwner {
    return this.#ownerOn(connection, this.#identityCaller(name));
  }

  /** The owner of a call that was authenticated. */
  ownerOf(call: IdentifiedCall): CallOwner {
    const { connection, identity } = call;
    const known = this.#connections.get(connection);
    const caller = this.#callerOf(identity, known?.host ?? hostOf(call.address));
    return this.#ownerOn(connection, caller);
  }

  /** Whether the connection of an owner counts for a caller, or is not known. */
  isCounted({ connection }: CallOwner): boolean {
    const known = this.#connections.get(connection);
    return known === undefined || known.isForwarder || known.first !== undefined;
  }

  /** Counts the connection of an owner for its caller, until it is closed. One of a trusted proxy is not counted. */
  count({ connection, caller }: CallOwner): void {
    const known = this.#connections.get(connection);
    if (known === undefined || known.isForwarder || known.first !== undefined) return;
    known.first = caller;
    if (caller.connections === 0) this.#connected++;
    caller.connections++;
  }

  /**
   * The probable owner of the next call of a connection, which is not authenticated yet. Of a connection that several
   * identities share, and of one of a trusted proxy: its host.
   */
  expectedOn(connection: object): CallOwner {
    const known = this.#connections.get(connection);
    if (known !== undefined && !known.isShared && !known.isForwarder) return known.last;
    return this.#hostCaller(known?.host ?? "").on(connection);
  }

  #ownerOn(connection: object, caller: Caller): CallOwner {
    const known = this.#connections.get(connection);
    if (known === undefined) return caller.on(connection);
    if (known.last.caller === caller) return known.last;
    if (!known.isShared && this.#hadCalls(known)) {
      known.isShared = true;
      if (known.isForwarder) this.#sharedForwarders++;
    }
    known.last = caller.on(connection);
    return known.last;
  }

  #hadCalls({ isForwarder, first, last, host }: Connected): boolean {
    return isForwarder ? last.caller !== this.#hostCaller(host) : first !== undefined;
  }

  #callerOf(identity: Identity, host: string): Caller {
    return identity.source === "none"
      ? this.#hostCaller(host)
      : this.#identityCaller(identity.name);
  }

  #identityCaller(name: string): Caller {
    const key = `identity ${name}`;
    return this.#known.get(key) ?? this.#add(key, `the identity ${JSON.stringify(name)}`);
  }

  #hostCaller(host: string): Caller {
    const key = `host ${host}`;
    return (
      this.#known.get(key) ??
      this.#add(key, host === "" ? "anonymous without an address" : `anonymous at ${host}`)
    );
  }

  #add(key: string, title: string): Caller {
    if (this.#known.size >= this.#maxIdle) this.#forgetIdle();
    const caller = new Caller(this.#clock, ownText(title), this.#rates);
    this.#known.set(ownText(key), caller);
    return caller;
  }

  /** Forgets the first idle one of a few. Those in use move to the end, so that the next search begins behind them. */
  #forgetIdle(): void {
    let looked = 0;
    for (const [key, caller] of this.#known) {
      this.#known.delete(key);
      if (!caller.isInUse) return;
      this.#known.set(key, caller);
      if (++looked === maxLooked) return;
    }
  }
}

/** Connections with open calls, of which nothing is known but their clients' addresses and ports. */
export class AddressedConnections {
  readonly #callers: Callers;
  readonly #open = new Map<string, { calls: number }>();

  constructor(callers: Callers) {
    this.#callers = callers;
  }

  /** Counts a call. Returns what its connection is known by: one of its own without an address. */
  opened(address: string): object {
    if (address === "") return { calls: 1 };
    const connection = this.#open.get(address) ?? { calls: 0 };
    if (connection.calls++ > 0) return connection;
    this.#open.set(address, connection);
    this.#callers.connected(connection, address);
    return connection;
  }

  /** A call has ended. */
  closed(address: string): void {
    const connection = this.#open.get(address);
    if (connection === undefined || --connection.calls > 0) return;
    this.#open.delete(address);
    this.#callers.closed(connection);
  }
}

/** Number of callers that are looked at to find an idle one. */
const maxLooked = 16;

/**
 * The host of an address, with or without a port: an IPv4 address, or the first 64 bits of an IPv6 address, since one host
 * usually has all addresses that begin with them.
 */
export function hostOf(address: string): string {
  const host = /^\[(.*)\](?::\d+)?$/.exec(address)?.[1] ?? address.replace(/^([^:]*):\d+$/, "$1");
  const mapped = host.replace(/^::ffff:(?=\d+\.)/i, "");
  if (isIPv4(mapped) || !isIPv6(host)) return mapped;
  const [head = "", tail] = (host.split("%")[0] ?? "").toLowerCase().split("::");
  const first = head === "" ? [] : head.split(":");
  const last = tail === undefined || tail === "" ? [] : tail.split(":");
  const middle = Array.from({ length: Math.max(0, 8 - first.length - last.length) }, () => "0");
  const groups = [...first, ...middle, ...last].map((group) => group.replace(/^0+(?=.)/, ""));
  return `${groups.slice(0, 4).join(":")}::/64`;
}
