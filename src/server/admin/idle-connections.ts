import type { Server } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "../../base/clock.ts";

/**
 * Bounds the connections of an HTTP server without refusing new ones: above the bound the connections are closed whose
 * last request is oldest, whether they are idle, in a request or slow to accept a response.
 *
 * New connections have two turns of the event loop to send a request before any is closed: hundreds may be accepted in
 * one turn, among them a probe whose request is read in the next turn.
 */
export class IdleConnections {
  readonly #maxConnections: number;
  readonly #clock: Clock;
  /** By the client's address, the connection whose last request is oldest first. With TLS a request has another socket. */
  readonly #sockets = new Map<string, Socket>();
  #isScheduled = false;

  constructor(server: Server, maxConnections: number, clock: Clock = systemClock) {
    this.#maxConnections = maxConnections;
    this.#clock = clock;
    server.on("connection", (socket) => this.#opened(socket));
  }

  /** A request of the connection has arrived completely. */
  asked(socket: Socket): void {
    const address = addressOf(socket);
    const accepted = this.#sockets.get(address);
    if (accepted === undefined) return;
    this.#sockets.delete(address);
    this.#sockets.set(address, accepted);
  }

  /** Closes all connections, also those in a TLS handshake. */
  closeAll(): void {
    for (const socket of this.#sockets.values()) socket.destroy();
  }

  #opened(socket: Socket): void {
    const address = addressOf(socket);
    this.#sockets.set(address, socket);
    socket.once("close", () => {
      // Another connection may have the same address by now.
      if (this.#sockets.get(address) === socket) this.#sockets.delete(address);
    });
    if (this.#sockets.size <= this.#maxConnections || this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(() => this.#clock.setImmediate(this.#closeSome));
  }

  readonly #closeSome = (): void => {
    this.#isScheduled = false;
    for (const [address, socket] of this.#sockets) {
      if (this.#sockets.size <= this.#maxConnections) return;
      this.#sockets.delete(address);
      socket.destroy();
    }
  };
}

function addressOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
