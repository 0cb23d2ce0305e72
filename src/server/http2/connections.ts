import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import type { ClientConnection } from "../kernel/client-connection.ts";
import { hostOf } from "../limits/callers.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
import { HostConnections } from "./host-connections.ts";
import { markUnixPeer, peerNameOf, rawSocketOf } from "./peer.ts";

/** The bounds of a server's connections. */
export interface ConnectionBounds {
  /** Maximum number of open connections. */
  readonly maxConnections: number;
  /** Time limit of the TLS handshake, in milliseconds. */
  readonly handshakeMs: number;
  /** Whether the server listens on a Unix socket. Default: false. */
  readonly isUnix?: boolean;
}

interface Connection {
  /** What its client is called in logs. */
  readonly name: string;
  readonly host: string;
  readonly socket: Socket;
  readonly since: number;
  /** Undefined before the handshake is finished, and once the connection is ended. */
  session: ClientConnection | undefined;
  calls: number;
}

/**
 * The connections of a server. At the bound a new connection replaces one of the host with the most, so that no host keeps
 * others out; one of a host that itself has as many replaces an idle one of its own, or is refused. A connection that does
 * not finish its handshake in time is closed. Keepalive finds those that go silent later.
 */
export class Connections {
  readonly #clock: Clock;
  readonly #bounds: ConnectionBounds;
  readonly #defences: Pick<Http2Defences, "count"> | undefined;
  /** By the accepted socket. */
  readonly #open = new Map<Socket, Connection>();
  readonly #byHost = new HostConnections<Connection>();
  /** Connections that have no HTTP/2 session yet, the oldest first. */
  readonly #unshaken = new Set<Connection>();
  /** Number of connections that were accepted. */
  #accepted = 0;
  #timer: Timer | undefined;

  constructor(clock: Clock, bounds: ConnectionBounds, defences?: Pick<Http2Defences, "count">) {
    this.#clock = clock;
    this.#defences = defences;
    this.#bounds = bounds;
  }

  /** Number of open connections. */
  get size(): number {
    return this.#open.size;
  }

  /** Adds a connection when it is accepted, before any handshake. */
  add(socket: Socket): void {
    this.#accepted++;
    if (this.#bounds.isUnix === true) markUnixPeer(socket, this.#accepted);
    const name = peerNameOf(socket);
    const host = hostOf(name);
    if (this.#open.size >= this.#bounds.maxConnections) {
      const replaced = this.#byHost.replace(host);
      this.#defences?.count("too_many_connections", replaced?.name ?? name);
      if (replaced === undefined) {
        socket.destroy();
        return;
      }
      this.#delete(replaced);
      replaced.socket.destroy();
    }
    const since = this.#clock.now();
    const connection: Connection = {
      ...{ name, host, socket, since },
      ...{ session: undefined, calls: 0 },
    };
    this.#open.set(socket, connection);
    this.#byHost.add(connection);
    this.#unshaken.add(connection);
    socket.once("close", () => this.#delete(connection));
    this.#setTimer();
  }

  /**
   * The connection has a session of HTTP/2, or a request of HTTP/1, from now on, on a socket that may be the one of TLS. Returns when it was accepted,
   * in the clock's milliseconds; undefined if it is closed.
   */
  begun(session: ClientConnection, socket: Socket): number | undefined {
    const connection = this.#open.get(rawSocketOf(socket));
    if (connection === undefined) return undefined;
    connection.session = session;
    this.#unshaken.delete(connection);
    this.#stopTimer();
    return connection.since;
  }

  /**
   * The sessions of the oldest connections, at most `count`, in order to end them: it does not return them again. They
   * stay open, and count as open, until they are closed.
   */
  takeOldest(count: number): ClientConnection[] {
    const oldest: ClientConnection[] = [];
    for (const connection of this.#open.values()) {
      if (oldest.length >= count) break;
      if (connection.session !== undefined) oldest.push(connection.session);
      connection.session = undefined;
    }
    return oldest;
  }

  /** Counts an open call. Returns a function to call once the call is closed. */
  opened(socket: Socket): () => void {
    const connection = this.#open.get(rawSocketOf(socket));
    if (connection === undefined) return () => {};
    connection.calls++;
    if (connection.calls === 1) this.#byHost.setIdle(connection, false);
    return () => {
      connection.calls--;
      if (connection.calls === 0) this.#byHost.setIdle(connection, true);
    };
  }

  /** Ends all connections that have a session gracefully: with GOAWAY, and once their calls have finished. */
  end(): void {
    for (const { session } of this.#open.values()) session?.close();
  }

  /** Closes all connections, with or without a session. */
  cut(): void {
    for (const { socket } of this.#open.values()) socket.destroy();
  }

  /** Resolves when the connections that are open now are closed. */
  async closed(): Promise<void> {
    await Promise.all(
      [...this.#open.values()].map(
        ({ socket }) => new Promise((resolve) => socket.once("close", resolve)),
      ),
    );
  }

  /** Idempotent. */
  #delete(connection: Connection): void {
    this.#byHost.delete(connection);
    this.#unshaken.delete(connection);
    this.#open.delete(connection.socket);
    this.#stopTimer();
  }

  #setTimer(): void {
    const { handshakeMs } = this.#bounds;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      for (const { name, socket, since } of this.#unshaken) {
        if (this.#clock.now() - since < handshakeMs) break;
        this.#defences?.count("handshake_timeout", name);
        socket.destroy();
      }
      if (this.#unshaken.size > 0) this.#setTimer();
    }, handshakeMs / 8);
  }

  #stopTimer(): void {
    if (this.#unshaken.size > 0) return;
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}
