import { Ledger, type Reservation } from "../kernel/ledger.ts";

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

  /** A connection has calls from now on, or none any more. No effect if it is not here. */
  setIdle(connection: T, isIdle: boolean): void {
    const place = this.#places.get(connection);
    if (place === undefined) return;
    place.reservation.since = isIdle ? ++this.#changes : busy + place.number;
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
