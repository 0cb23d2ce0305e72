import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import { headerBytes } from "../http2/request-headers.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";

/** How long the headers of the next request may take to arrive, in milliseconds. */
const idleMs = 120_000;

/** After how long without a packet the operating system asks whether the client is still there, in milliseconds. */
const keepaliveMs = 30_000;

/** Number of requests that a client may send before it has the response to the first. */
const maxPipelined = 32;

/** How much of a body Node.js reads before it is asked for it, in bytes. */
const maxBodyAhead = 64 * 1024;

/** A request that waits for the response to the one before. */
interface Waiting {
  readonly handle: () => void;
  /** For what has been read of it. */
  readonly charge: Reservation | undefined;
}

/**
 * A client's connection with HTTP/1. Its requests are handled one after the other, in their order. It can be ended as a session of
 * HTTP/2 can: the current response is finished first.
 */
export class Http1Connection {
  readonly socket: Socket;
  readonly #waiting: Waiting[] = [];
  readonly #clock: Clock;
  readonly #requestPool: Ledger;
  #timer: Timer | undefined;
  #isBusy = false;
  #isClosing = false;

  /** `requestPool` counts what is held of requests that wait. */
  constructor(socket: Socket, clock: Clock, requestPool: Ledger) {
    this.socket = socket;
    this.#clock = clock;
    this.#requestPool = requestPool;
    socket.setKeepAlive(true, keepaliveMs);
    this.#waitForRequest();
    socket.once("close", () => {
      this.#timer?.cancel();
      for (const { charge } of this.#waiting.splice(0)) charge?.release();
    });
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
    if (this.#isBusy) {
      this.#waiting.push({ handle, charge: this.#chargeFor(response.req) });
      return;
    }
    this.#timer?.cancel();
    this.#isBusy = true;
    handle();
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
    // Behind a response that closes the connection no other could be sent.
    if (!this.socket.writable) return;
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
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#isBusy = true;
    next.charge?.release();
    next.handle();
  }

  /** Charges what has been read of a request that waits. Undefined: its connection is closed already. */
  #chargeFor({ headers }: IncomingMessage): Reservation | undefined {
    if (this.socket.destroyed) return undefined;
    const length = Number(headers["content-length"] ?? 0);
    const isChunked = headers["transfer-encoding"] !== undefined;
    const bodyBytes = isChunked ? maxBodyAhead : Math.min(length, maxBodyAhead);
    const bytes = headerBytes(headers) + bodyBytes;
    return this.#requestPool.reserve(this, bytes, () => this.socket.destroy());
  }
}
