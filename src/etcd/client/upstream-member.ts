import { isIP, connect as netConnect, type Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import type { Clock } from "../../base/clock.ts";
import { addressOf, type Bearer } from "./endpoint.ts";
import type { Keepalive, MemberCertificates } from "./member.ts";
import { UpstreamConnection } from "./upstream-connection.ts";

/** Maximum number of connections to one member: as many calls as a server may have open, at 1,000 each, and some. */
const maxConnections = 256;

/** How long calls fail at once after an attempt to connect has failed, in milliseconds. */
const retryMs = 100;

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
  readonly #connections = new Set<UpstreamConnection>();
  #connecting: Promise<UpstreamConnection> | undefined;
  #failure: { readonly error: Error; readonly at: number } | undefined;
  #isClosed = false;
  /** Whether calls go to it now. */
  isInUse = false;

  /** `onUnresponsive` is called when the member does not respond to keepalive pings. */
  constructor(
    endpoint: string,
    certificates: MemberCertificates | undefined,
    clock: Clock,
    keepalive: Keepalive,
    bearer: Bearer | undefined,
    onUnresponsive: (member: UpstreamMember) => void,
  ) {
    this.endpoint = endpoint;
    this.#certificates = certificates;
    this.#clock = clock;
    this.#keepalive = keepalive;
    this.#bearer = bearer;
    this.#onUnresponsive = onUnresponsive;
  }

  /** Number of connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** A connection for one more call; undefined: no connection has room now. */
  available(): UpstreamConnection | undefined {
    for (const connection of this.#connections) if (connection.hasRoom) return connection;
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

  /** Closes all connections. */
  close(): void {
    this.#isClosed = true;
    for (const connection of this.#connections) connection.destroy();
  }

  async #connect(): Promise<UpstreamConnection> {
    try {
      const { endpoint } = this;
      const connection = await UpstreamConnection.connect(this.#clock, endpoint, {
        ...{ keepalive: this.#keepalive, bearer: this.#bearer },
        isInUse: () => this.isInUse,
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
      if (this.#isClosed) connection.destroy();
      else this.#connections.add(connection);
      return connection;
    } catch (thrown) {
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      this.#failure = { error, at: this.#clock.now() };
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
