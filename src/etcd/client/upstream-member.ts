import { isIP, connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Clock } from "../../base/clock.ts";
import { messageOf, toError } from "../../base/errors.ts";
import type { Bearer } from "./call-headers.ts";
import type { Keepalive, MemberCertificates } from "./member.ts";
import {
  addressOf,
  type ConnectedMember,
  Http2Connection,
  type UpstreamConnection,
} from "./upstream-connection.ts";

/** Maximum number of connections to one member: as many calls as a server may have open, at 1,000 each, and some. */
const maxConnections = 256;

/** How long calls fail at once after an attempt to connect has failed, in milliseconds. */
const retryMs = 100;

/** How long other members are preferred to one that can't be reached or has refused a call, in milliseconds. */
const leftOutMs = 1_000;

/** Connects to a member in this process. Throws an Error if it does not serve. */
export type ConnectInProcess = (member: ConnectedMember) => UpstreamConnection;

/** What the members of an upstream have in common. */
export interface UpstreamMemberDeps {
  readonly certificates: MemberCertificates | undefined;
  readonly clock: Clock;
  readonly keepalive: Keepalive;
  readonly bearer: Bearer | undefined;
  /** Connects to a member of this process. Undefined: members are connected to by HTTP/2. */
  readonly connect: ConnectInProcess | undefined;
  /** Called when a member does not respond to keepalive pings. */
  readonly onUnresponsive: (member: UpstreamMember) => void;
  /** Called when a member has refused a call that another one may do, or has failed to connect for `prepare`. */
  readonly onRefused: (member: UpstreamMember, why: string) => void;
}

/**
 * One member of etcd, and the connections to it. Calls go to the first connection that has room; a further one is made
 * when none has, and closed when it has no call.
 */
export class UpstreamMember implements ConnectedMember {
  /** Such as "http://127.0.0.1:2379". */
  readonly endpoint: string;
  readonly keepalive: Keepalive;
  readonly bearer: Bearer | undefined;
  readonly #deps: UpstreamMemberDeps;
  readonly #clock: Clock;
  readonly #connections = new Set<UpstreamConnection>();
  #connecting: Promise<UpstreamConnection> | undefined;
  #failure: { readonly error: Error; readonly at: number } | undefined;
  #leftOutUntil = -Infinity;
  #isClosed = false;
  isInUse = false;

  constructor(endpoint: string, deps: UpstreamMemberDeps) {
    this.endpoint = endpoint;
    this.keepalive = deps.keepalive;
    this.bearer = deps.bearer;
    this.#deps = deps;
    this.#clock = deps.clock;
  }

  /** Number of connections. */
  get connections(): number {
    return this.#connections.size;
  }

  get isLeftOut(): boolean {
    return this.#clock.now() < this.#leftOutUntil;
  }

  /** It can't be reached, or has refused a call: others are preferred for a while. */
  leaveOut(): void {
    this.#leftOutUntil = this.#clock.now() + leftOutMs;
  }

  /** A connection for one more call, of those that `suits` is true for; undefined: none has room now. */
  available(suits?: (connection: UpstreamConnection) => boolean): UpstreamConnection | undefined {
    for (const connection of this.#connections)
      if (connection.hasRoom && suits?.(connection) !== false) return connection;
    return undefined;
  }

  /**
   * Makes a connection, one for all that wait for it. It may have no room any more when this resolves. Rejects with an
   * Error, at once for a short while after that happened.
   */
  connect(): Promise<UpstreamConnection> {
    if (this.#isClosed) return Promise.reject(new Error("the service is shutting down"));
    const { error, at = 0 } = this.#failure ?? {};
    if (error !== undefined && this.#clock.now() - at < retryMs) return Promise.reject(error);
    if (this.#connections.size >= maxConnections) {
      return Promise.reject(new Error(`${maxConnections} connections have no room`));
    }
    this.#connecting ??= this.#connect().finally(() => {
      this.#connecting = undefined;
    });
    return this.#connecting;
  }

  /** Makes a connection for later calls, unless one is being made. */
  prepare(): void {
    if (this.#connecting !== undefined) return;
    this.connect().catch((error: unknown) => this.refused(messageOf(error)));
  }

  /** Closes all connections. */
  close(): void {
    this.#isClosed = true;
    for (const connection of this.#connections) connection.destroy();
  }

  /** Gets no further calls, and closes its connections behind those that it has. */
  retire(): void {
    this.#isClosed = true;
    for (const connection of this.#connections) connection.close();
  }

  async #connect(): Promise<UpstreamConnection> {
    try {
      const connect =
        this.#deps.connect ?? ((member) => Http2Connection.connect(this.#clock, member));
      const connection = await connect(this);
      this.#failure = undefined;
      this.#leftOutUntil = -Infinity;
      if (this.#isClosed) connection.destroy();
      else this.#connections.add(connection);
      return connection;
    } catch (thrown) {
      const error = toError(thrown);
      this.#failure = { error, at: this.#clock.now() };
      this.leaveOut();
      throw error;
    }
  }

  refused(why: string): void {
    this.#deps.onRefused(this, why);
  }

  idle(connection: UpstreamConnection): void {
    if (this.#connections.size > 1) connection.close();
  }

  lost(connection: UpstreamConnection): void {
    this.#connections.delete(connection);
    if (connection.isUnresponsive) this.#deps.onUnresponsive(this);
  }

  /** Starts a connection with the certificates that are current. */
  open(): Socket {
    const address = addressOf(this.endpoint);
    const host = "host" in address ? address.host : "localhost";
    const { certificates } = this.#deps;
    if (certificates === undefined) return netConnect({ ...address, noDelay: true });
    const { store, isVerified } = certificates;
    const { authorities, pair } = store;
    const socket = tlsConnect({
      ...address,
      ...(isIP(host) === 0 && { servername: host }),
      ALPNProtocols: ["h2"],
      ca: authorities,
      cert: pair?.cert,
      key: pair?.key,
      rejectUnauthorized: isVerified,
    });
    socket.setNoDelay(true);
    return socket;
  }
}
