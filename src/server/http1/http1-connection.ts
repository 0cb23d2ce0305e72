import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";

/** How long the headers of the next request may take to arrive, in milliseconds. */
const idleMs = 120_000;

/** After how long without a packet the operating system asks whether the client is still there, in milliseconds. */
const keepaliveMs = 30_000;

/** Number of requests that a client may send before it has the response to the first. */
const maxPipelined = 32;

/**
 * A client's connection with HTTP/1. Its requests are handled one after the other, in their order. It can be ended as a session of
 * HTTP/2 can: the current response is finished first.
 */
export class Http1Connection {
  readonly socket: Socket;
  /** Those that wait for the response to the one before. */
  readonly #waiting: (() => void)[] = [];
  readonly #clock: Clock;
  #timer: Timer | undefined;
  #isBusy = false;
  #isClosing = false;

  constructor(socket: Socket, clock: Clock) {
    this.socket = socket;
    this.#clock = clock;
    socket.setKeepAlive(true, keepaliveMs);
    this.#waitForRequest();
    socket.once("close", () => this.#timer?.cancel());
  }

  /** Whether it takes no more requests. */
  get closed(): boolean {
    return this.#isClosing;
  }

  get destroyed(): boolean {
    return this.socket.destroyed;
  }

  /** Calls `handle` when it is the turn of this request. */
  add(response: ServerResponse<IncomingMessage>, handle: () => void): void {
    if (this.#isClosing || this.#waiting.length === maxPipelined) {
      this.socket.destroy();
      return;
    }
    response.once("close", () => this.#next());
    this.#waiting.push(handle);
    if (this.#isBusy) return;
    this.#timer?.cancel();
    this.#handleNext();
  }

  /** Ends it once its requests have responses. Idempotent. */
  close(): void {
    this.#isClosing = true;
    if (!this.#isBusy) this.socket.destroySoon();
  }

  destroy(): void {
    this.socket.destroy();
  }

  once(event: "close", listener: () => void): void {
    this.socket.once(event, listener);
  }

  #next(): void {
    this.#isBusy = false;
    if (this.socket.destroyed) return;
    if (this.#waiting.length > 0) {
      this.#handleNext();
    } else if (this.#isClosing) {
      this.socket.destroySoon();
    } else {
      this.#waitForRequest();
    }
  }

  #waitForRequest(): void {
    this.#timer = this.#clock.setTimeout(() => this.socket.destroy(), idleMs);
  }

  #handleNext(): void {
    this.#isBusy = true;
    this.#waiting.shift()?.();
  }
}
