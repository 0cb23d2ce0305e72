import type { Http2Session } from "node:http2";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";

/** The bounds of a server's connections. */
export interface ConnectionBounds {
  /** How many may be open at once. */
  readonly maxConnections: number;
  /** How long one may take to finish its TLS handshake, in milliseconds. */
  readonly handshakeMs: number;
}

interface Connection {
  readonly address: string;
  readonly socket: Socket;
  readonly since: number;
  calls: number;
}

/**
 * The connections of a server. At the bound a new one takes the place of the one that has been without a call for
 * longest; where all have calls it is refused. Those that never finish their handshake are closed; what goes silent
 * later is for keepalive to find.
 */
export class Connections {
  readonly #clock: Clock;
  readonly #bounds: ConnectionBounds;
  /** By the client's address: the session has another object for the same socket. */
  readonly #open = new Map<string, Connection>();
  /** Those without a call, for longest the first. */
  readonly #idle = new Set<Connection>();
  /** Those that are no session yet, the oldest first. */
  readonly #unshaken = new Set<Connection>();
  #timer: Timer | undefined;

  constructor(clock: Clock, bounds: ConnectionBounds) {
    this.#clock = clock;
    this.#bounds = bounds;
  }

  /** How many are open. */
  get size(): number {
    return this.#open.size;
  }

  /** A client has connected, and has said nothing yet. */
  add(socket: Socket): void {
    if (this.#open.size >= this.#bounds.maxConnections) {
      const [idlest] = this.#idle;
      if (idlest === undefined) {
        socket.destroy();
        return;
      }
      this.#delete(idlest);
      idlest.socket.destroy();
    }
    const address = addressOf(socket);
    const connection = { address, socket, since: this.#clock.now(), calls: 0 };
    this.#open.set(address, connection);
    this.#idle.add(connection);
    this.#unshaken.add(connection);
    socket.once("close", () => this.#delete(connection));
    this.#setTimer();
  }

  /** It speaks HTTP/2 from now on. */
  begun(session: Http2Session): void {
    const connection = this.#of(session);
    if (connection === undefined) return;
    this.#unshaken.delete(connection);
    this.#stopTimer();
  }

  /** Counts a call that is open, and returns what is to be called once it is closed. */
  opened(session: Http2Session): () => void {
    const connection = this.#of(session);
    if (connection === undefined) return () => {};
    connection.calls++;
    this.#idle.delete(connection);
    return () => {
      connection.calls--;
      if (connection.calls === 0 && !connection.socket.destroyed) this.#idle.add(connection);
    };
  }

  /** Closes all, among them those that have not come as far as a session. Resolves when they are closed. */
  async cut(): Promise<void> {
    const closed = [...this.#open.values()].map(({ socket }) => {
      socket.destroy();
      return new Promise((resolve) => socket.once("close", resolve));
    });
    await Promise.all(closed);
  }

  #of(session: Http2Session): Connection | undefined {
    return session.destroyed ? undefined : this.#open.get(addressOf(session.socket));
  }

  /** Idempotent. */
  #delete(connection: Connection): void {
    this.#idle.delete(connection);
    this.#unshaken.delete(connection);
    const { address } = connection;
    // Its address may be another's by now.
    if (this.#open.get(address) === connection) this.#open.delete(address);
    this.#stopTimer();
  }

  #setTimer(): void {
    const { handshakeMs } = this.#bounds;
    this.#timer ??= this.#clock.setTimeout(() => {
      this.#timer = undefined;
      for (const { socket, since } of this.#unshaken) {
        if (this.#clock.now() - since < handshakeMs) break;
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

function addressOf({
  remoteAddress,
  remotePort,
}: Pick<Socket, "remoteAddress" | "remotePort">): string {
  return `${remoteAddress} ${remotePort}`;
}
