/** A connection that was accepted from a host. */
interface HostConnection {
  /** The host of its client, as `hostOf` returns it. */
  readonly host: string;
}

/** The connections of a host. */
interface Host<T> {
  readonly all: Set<T>;
  /** Those without a call, the longest idle first. */
  readonly idle: Set<T>;
}

/**
 * The open connections of a server by their clients' host, and which of them makes room for a new one. Takes constant
 * time, since a client that can't be accepted tries again as fast as it can.
 */
export class HostConnections<T extends HostConnection> {
  readonly #hosts = new Map<string, Host<T>>();
  /** The hosts by their number of connections; hosts without any are absent. */
  readonly #bySize = new Map<number, Set<string>>();
  /** Connections without a call, of all hosts, the longest idle first. */
  readonly #idle = new Set<T>();
  #largest = 0;

  /** Adds a connection, without a call. It must not be here. */
  add(connection: T): void {
    const { host } = connection;
    let connections = this.#hosts.get(host);
    if (connections === undefined) {
      connections = { all: new Set(), idle: new Set() };
      this.#hosts.set(host, connections);
    }
    const { all } = connections;
    all.add(connection);
    this.#resized(host, all.size - 1, all.size);
    this.setIdle(connection, true);
  }

  /** Removes a connection. Idempotent. */
  delete(connection: T): void {
    const { host } = connection;
    const connections = this.#hosts.get(host);
    if (connections?.all.delete(connection) !== true) return;
    connections.idle.delete(connection);
    this.#idle.delete(connection);
    const { size } = connections.all;
    if (size === 0) this.#hosts.delete(host);
    this.#resized(host, size + 1, size);
  }

  /** A connection has calls from now on, or none any more. No effect if it is not here. */
  setIdle(connection: T, isIdle: boolean): void {
    const connections = this.#hosts.get(connection.host);
    if (connections?.all.has(connection) !== true) return;
    for (const idle of [connections.idle, this.#idle]) {
      idle.delete(connection);
      if (isIdle) idle.add(connection);
    }
  }

  /**
   * The connection that makes room for a new one of `host`; undefined: the new one is refused.
   *
   * It is one of the host with the most connections: its longest idle one, or else its oldest. That host must have at least
   * two more than `host`: with just one more, it would be entitled to get it back at once. If no host has as many, it is
   * the longest idle one of `host` itself. If that has no connection at all, it may replace an idle one of any host.
   */
  replacedBy(host: string): T | undefined {
    const own = this.#hosts.get(host);
    const size = own?.all.size ?? 0;
    if (this.#largest > size + 1) {
      const [largest = ""] = this.#bySize.get(this.#largest) ?? [];
      const { idle, all } = this.#hosts.get(largest) ?? {};
      return firstOf(idle) ?? firstOf(all);
    }
    return own === undefined ? firstOf(this.#idle) : firstOf(own.idle);
  }

  /** Sizes change by one, so the largest does as well. */
  #resized(host: string, before: number, after: number): void {
    const left = this.#bySize.get(before);
    left?.delete(host);
    if (left?.size === 0) this.#bySize.delete(before);
    if (after > 0) {
      const joined = this.#bySize.get(after);
      if (joined === undefined) this.#bySize.set(after, new Set([host]));
      else joined.add(host);
    }
    if (after > this.#largest || !this.#bySize.has(this.#largest)) this.#largest = after;
  }
}

function firstOf<T>(connections: ReadonlySet<T> = new Set()): T | undefined {
  for (const first of connections) return first;
  return undefined;
}
