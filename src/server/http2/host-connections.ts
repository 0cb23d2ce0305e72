/** A connection that was accepted from a host. */
interface HostConnection {
  /** The host of its client, as `hostOf` returns it. */
  readonly host: string;
}

/**
 * The open connections of a server by their clients' host. Finds the host with the most in constant time, since a client
 * that can't be accepted tries again as fast as it can.
 */
export class HostConnections<T extends HostConnection> {
  readonly #byHost = new Map<string, Set<T>>();
  /** The hosts by their number of connections; hosts without any are absent. */
  readonly #bySize = new Map<number, Set<string>>();
  #largest = 0;

  /** Adds a connection, which must not be here. */
  add(connection: T): void {
    const { host } = connection;
    const connections = this.#byHost.get(host) ?? new Set<T>();
    this.#byHost.set(host, connections);
    connections.add(connection);
    this.#resized(host, connections.size - 1, connections.size);
  }

  /** Removes a connection. Idempotent. */
  delete(connection: T): void {
    const { host } = connection;
    const connections = this.#byHost.get(host);
    if (connections?.delete(connection) !== true) return;
    if (connections.size === 0) this.#byHost.delete(host);
    this.#resized(host, connections.size + 1, connections.size);
  }

  /**
   * The connection that makes room for a new one of `host`: the oldest of the host with the most. Undefined if no host has
   * at least two more than this one: with just one more, it would be entitled to get it back at once.
   */
  oldestBeside(host: string): T | undefined {
    const own = this.#byHost.get(host)?.size ?? 0;
    if (this.#largest <= own + 1) return undefined;
    const [largest = ""] = this.#bySize.get(this.#largest) ?? [];
    const [oldest] = this.#byHost.get(largest) ?? [];
    return oldest;
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
