import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** Few clients send a request before they have the response to the previous one. */
const maxPipelined = 4;

/**
 * Bounds the requests of a connection whose responses it has not accepted. HTTP allows to send many at once, and Node.js
 * would build and hold the responses to all of them.
 */
export class PipelinedRequests {
  readonly #pending = new WeakMap<Socket, number>();

  /** Counts a request until its response is accepted. At the bound it closes the connection, and returns false. */
  add(socket: Socket, response: ServerResponse): boolean {
    const count = this.#pending.get(socket) ?? 0;
    if (count >= maxPipelined) {
      socket.destroy();
      return false;
    }
    this.#pending.set(socket, count + 1);
    response.once("close", () => {
      this.#pending.set(socket, (this.#pending.get(socket) ?? 1) - 1);
    });
    return true;
  }
}
