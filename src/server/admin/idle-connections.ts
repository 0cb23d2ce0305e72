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
  /** The connection whose last request is oldest comes first. */
  readonly #sockets = new Set<Socket>();
  #isScheduled = false;

  constructor(server: Server, maxConnections: number, clock: Clock = systemClock) {
    this.#maxConnections = maxConnections;
    this.#clock = clock;
    server.on("connection", (socket) => this.#opened(socket));
  }

  /** A request of the connection has arrived completely. */
  asked(socket: Socket): void {
    if (this.#sockets.delete(socket)) this.#sockets.add(socket);
  }

  #opened(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    if (this.#sockets.size <= this.#maxConnections || this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(() => this.#clock.setImmediate(this.#closeSome));
  }

  readonly #closeSome = (): void => {
    this.#isScheduled = false;
    for (const socket of this.#sockets) {
      if (this.#sockets.size <= this.#maxConnections) return;
      this.#sockets.delete(socket);
      socket.destroy();
    }
  };
}
