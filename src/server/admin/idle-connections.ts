import type { Server } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "../../base/clock.ts";

/**
 * Keeps an HTTP server to so many connections without ever locking a newcomer out: where there are more, those are
 * closed that have asked for nothing for longest, whether they are idle, amidst a request or slow to take an answer.
 *
 * A newcomer has two turns of the event loop to say what it wants before any is closed: hundreds may be accepted in
 * one turn, of which one is the probe that matters, whose request is read in the next.
 */
export class IdleConnections {
  readonly #maxConnections: number;
  readonly #clock: Clock;
  /** Whoever has asked for nothing for longest comes first. */
  readonly #sockets = new Set<Socket>();
  #isScheduled = false;

  constructor(server: Server, maxConnections: number, clock: Clock = systemClock) {
    this.#maxConnections = maxConnections;
    this.#clock = clock;
    server.on("connection", (socket) => this.#opened(socket));
  }

  /** A request has come whole. */
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
