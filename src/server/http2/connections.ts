import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import { Ledger, type Reservation } from "../kernel/ledger.ts";
import type { ClientConnection } from "../kernel/open-streams.ts";
import { hostOf } from "../limits/callers.ts";
import type { Http2Defences } from "../limits/http2-defences.ts";
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
      if (connection.calls > 0) return;
      this.#byHost.setIdle(connection, true, connection.session?.closed);
    };
  }

  /** Ends all connections that have a session gracefully: with GOAWAY, and once their calls have finished. */
  end(): void {
    for (const { session } of this.#open.values()) {
      if (session !== undefined) closeOnceAcknowledged(session);
    }
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

/**
 * Ends a connection gracefully, with GOAWAY, once its client has acknowledged the settings. grpc-js loses a GOAWAY that it reads
 * together with them where no microtask runs between two frames, as in Deno: then it takes the connection for a good one, and
 * never makes another.
 */
export function closeOnceAcknowledged(session: ClientConnection): void {
  if (session.pendingSettingsAck === true) session.once("localSettings", () => session.close());
  else session.close();
}

/** A connection that was accepted from a host. */
interface HostConnection {
  /** The host of its client, as `hostOf` returns it. */
  readonly host: string;
}

/** The place of a connection among those of its host. */
interface Place {
  readonly reservation: Reservation;
  /** How many connections had been accepted with it. */
  readonly number: number;
}

/** Above the number of any change: connections with calls are replaced after those without. */
const busy = 2 ** 52;

/**
 * The open connections of a server by their clients' host, and which of them makes room for a new one. That takes no longer
 * with many connections, since a client that can't be accepted tries again as fast as it can.
 */
export class HostConnections<T extends HostConnection> {
  /** The longest idle connection of a host comes first, and behind the idle ones the oldest. */
  readonly #hosts = new Ledger<string>();
  readonly #places = new Map<T, Place>();
  /** Connections without a call, of all hosts, the longest idle first. */
  readonly #idle = new Set<T>();
  /** How many each host has of those; hosts without any are absent. */
  readonly #idleOf = new Map<string, number>();
  #changes = 0;
  #evicted: T | undefined;

  /** Adds a connection, without a call. It must not be here. */
  add(connection: T): void {
    const evict = (): void => {
      this.#evicted = connection;
    };
    const reservation = this.#hosts.reserve(connection.host, 1, evict);
    this.#places.set(connection, { reservation, number: ++this.#changes });
    this.setIdle(connection, true);
  }

  /** Removes a connection. Idempotent. */
  delete(connection: T): void {
    this.#places.get(connection)?.reservation.release();
    this.#places.delete(connection);
    this.#countIdle(connection, false);
  }

  /**
   * A connection has calls from now on, or none any more. `isEnding`: it takes no further ones, and makes room before all others
   * of its host. No effect if it is not here.
   */
  setIdle(connection: T, isIdle: boolean, isEnding: boolean = false): void {
    const place = this.#places.get(connection);
    if (place === undefined) return;
    const idleSince = isEnding ? 0 : ++this.#changes;
    place.reservation.since = isIdle ? idleSince : busy + place.number;
    this.#countIdle(connection, isIdle);
  }

  /**
   * Removes and returns the connection that makes room for a new one of `host`; undefined: the new one is refused.
   *
   * It is one of the host with the most connections: its longest idle one, or else its oldest. That host must have at least
   * two more than `host`: with just one more, it would be entitled to get it back at once. If no host has as many, it is
   * the longest idle one of `host` itself. If that has no connection at all, it may replace an idle one of any host.
   */
  replace(host: string): T | undefined {
    const hosts = this.#hosts;
    this.#evicted = undefined;
    if (!hosts.makeRoom(host, hosts.total)) {
      // The ledger would look at all connections of the host to find that none is idle.
      if (this.#idleOf.has(host)) hosts.evict(busy, host);
      else if (hosts.of(host) === 0) [this.#evicted] = this.#idle;
    }
    const replaced = this.#evicted;
    if (replaced !== undefined) this.delete(replaced);
    return replaced;
  }

  #countIdle(connection: T, isIdle: boolean): void {
    const wasIdle = this.#idle.delete(connection);
    if (isIdle) this.#idle.add(connection);
    const { host } = connection;
    const idle = (this.#idleOf.get(host) ?? 0) + Number(isIdle) - Number(wasIdle);
    if (idle === 0) this.#idleOf.delete(host);
    else this.#idleOf.set(host, idle);
  }
}
