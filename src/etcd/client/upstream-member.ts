import { isIP, connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Clock } from "../../base/clock.ts";
import { messageOf, toError } from "../../base/errors.ts";
import { addressOf, type Bearer } from "./endpoint.ts";
import type { Keepalive, MemberCertificates } from "./member.ts";
import { UpstreamConnection } from "./upstream-connection.ts";

/** Maximum number of connections to one member: as many calls as a server may have open, at 1,000 each, and some. */
const maxConnections = 256;

/** How long calls fail at once after an attempt to connect has failed, in milliseconds. */
const retryMs = 100;

/** How long other members are preferred to one that can't be reached or has refused a call, in milliseconds. */
const leftOutMs = 1_000;

/**
 * One member of etcd, and the connections to it. Calls go to the first connection that has room; a further one is made
 * when none has, and closed when it has no call.
 */
export class UpstreamMember {
  /** Such as "http://127.0.0.1:2379". */
  readonly endpoint: string;
  readonly #clock: Clock;
  readonly #certificates: MemberCertificates | undefined;
  readonly #keepalive: Keepalive;
  readonly #bearer: Bearer | undefined;
  readonly #onUnresponsive: (member: UpstreamMember) => void;
  readonly #onRefused: (member: UpstreamMember, why: string) => void;
  readonly #connections = new Set<UpstreamConnection>();
  #connecting: Promise<UpstreamConnection> | undefined;
  #failure: { readonly error: Error; readonly at: number } | undefined;
  #leftOutUntil = -Infinity;
  #isClosed = false;
  /** Whether calls that need one member go to this one now. */
  isInUse = false;

  /**
   * `onUnresponsive` is called when the member does not respond to keepalive pings, `onRefused` when it has refused a call
   * that another member may do, or has failed to connect for `prepare`.
   */
  constructor(
    endpoint: string,
    certificates: MemberCertificates | undefined,
    clock: Clock,
    keepalive: Keepalive,
    bearer: Bearer | undefined,
    onUnresponsive: (member: UpstreamMember) => void,
    onRefused: (member: UpstreamMember, why: string) => void,
  ) {
    this.endpoint = endpoint;
    this.#certificates = certificates;
    this.#clock = clock;
    this.#keepalive = keepalive;
    this.#bearer = bearer;
    this.#onUnresponsive = onUnresponsive;
    this.#onRefused = onRefused;
  }

  /** Number of connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** Whether others are preferred for now. */
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
    this.connect().catch((error: unknown) => this.#onRefused(this, messageOf(error)));
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
      const { endpoint } = this;
      const connection = await UpstreamConnection.connect(this.#clock, {
        ...{ endpoint, keepalive: this.#keepalive, bearer: this.#bearer },
        isInUse: () => this.isInUse,
        isLeftOut: () => this.isLeftOut,
        leaveOut: (why) => this.#onRefused(this, why),
        open: () => this.#open(),
        onIdle: (idle) => {
          if (this.#connections.size > 1) idle.close();
        },
        onLost: (lost) => {
          this.#connections.delete(lost);
          if (lost.isUnresponsive) this.#onUnresponsive(this);
        },
      });
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

  /** Starts a connection with the certificates that are current. */
  #open(): Socket {
    const address = addressOf(this.endpoint);
    const host = "host" in address ? address.host : "localhost";
    if (this.#certificates === undefined) return netConnect({ ...address, noDelay: true });
    const { store, isVerified } = this.#certificates;
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
