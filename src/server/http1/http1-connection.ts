import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Clock, Timer } from "../../base/clock.ts";
import { headerBytes } from "../http2/request-headers.ts";
import type { Ledger, Reservation } from "../kernel/ledger.ts";

/** How long the headers of the next request may take to arrive, in milliseconds. */
const idleMs = 120_000;

/**
 * How long a connection that ends waits for its client, in milliseconds: to close its side, or behind a response that could
 * not say that it is the last one, for one more request.
 */
const lingerMs = 5_000;

/** After how long without a packet the operating system asks whether the client is still there, in milliseconds. */
const keepaliveMs = 30_000;

/** Number of requests that a client may send before it has the response to the first. */
const maxPipelined = 32;

/** How much of a body Node.js reads before it is asked for it, in bytes. */
const maxBodyAhead = 64 * 1024;

/** A request that waits for the response to the one before. */
interface Waiting {
  readonly handle: () => void;
  readonly count: (() => void) | undefined;
  /** For what has been read of it. */
  readonly charge: Reservation | undefined;
}

/**
 * A client's connection with HTTP/1. Its requests are handled one after the other, in their order. It can be ended as a session of
 * HTTP/2 can: the current response is finished first. If its headers are sent already, the client does not know that the
 * connection ends, so the response to one more request says it (RFC 9112, 9.6).
 */
export class Http1Connection {
  readonly socket: Socket;
  readonly #waiting: Waiting[] = [];
  readonly #clock: Clock;
  readonly #requestPool: Ledger;
  #timer: Timer | undefined;
  #isBusy = false;
  #isClosing = false;
  /** Whether the client gets no response behind the current one. */
  #isLast = false;

  /** `requestPool` counts what is held of requests that wait. */
  constructor(socket: Socket, clock: Clock, requestPool: Ledger) {
    this.socket = socket;
    this.#clock = clock;
    this.#requestPool = requestPool;
    socket.setKeepAlive(true, keepaliveMs);
    // What Node.js calls behind a response that closes the connection.
    socket.destroySoon = this.#end;
    this.#waitForRequest();
    socket.once("close", () => {
      this.#timer?.cancel();
      for (const { charge } of this.#waiting.splice(0)) charge?.release();
    });
  }

  /** Whether it ends once its requests have responses. */
  get closed(): boolean {
    return this.#isClosing;
  }

  /** Whether the response to the current request is the last one, and needs the header `connection: close`. */
  get isLast(): boolean {
    return this.#isLast || (this.#isClosing && this.#waiting.length === 0);
  }

  get destroyed(): boolean {
    return this.socket.destroyed;
  }

  /**
   * Calls `count` when it is the turn of this request, to count its call, and then `handle`, which may be in the next turn of the
   * event loop. A page has no call.
   */
  add(response: ServerResponse<IncomingMessage>, handle: () => void, count?: () => void): void {
    if (this.#isLast) return;
    if (this.#waiting.length === maxPipelined) {
      this.socket.destroy();
      return;
    }
    response.once("close", () => this.#next());
    if (this.#isBusy) {
      this.#waiting.push({ handle, count, charge: this.#chargeFor(response.req) });
      return;
    }
    this.#timer?.cancel();
    this.#isBusy = true;
    count?.();
    handle();
  }

  /** Ends it once its requests have responses. Idempotent. */
  close(): void {
    if (this.#isClosing) return;
    this.#isClosing = true;
    if (!this.#isBusy) this.#end();
  }

  /** The response to the current request is the last one. Further requests are dropped. Idempotent. */
  endBehindCurrent(): void {
    this.#isLast = true;
  }

  destroy(): void {
    this.socket.destroy();
  }

  once(event: "close", listener: () => void): void {
    this.socket.once(event, listener);
  }

  #next(): void {
    // Behind a response that closes the connection no other could be sent.
    if (!this.socket.writable) return;
    const [next] = this.#waiting;
    if (next === undefined) {
      this.#isBusy = false;
      this.#waitForRequest();
      return;
    }
    // Before the call in front of it counts as closed: the connection has a call all the time.
    next.count?.();
    // In a later turn: responses may be made at once, and many connections may have as many requests.
    this.#clock.setImmediate(this.#handleNext);
  }

  #waitForRequest(): void {
    this.#timer?.cancel();
    const ms = this.#isClosing ? lingerMs : idleMs;
    this.#timer = this.#clock.setTimeout(() => this.socket.destroy(), ms);
  }

  /**
   * Ends its side, and reads on until the client ends the other one, for 5 s at most. Of a closed connection the operating
   * system would answer what still arrives with a reset, upon which the client loses what it has not read of the response.
   */
  readonly #end = (): void => {
    const { socket } = this;
    this.#isLast = true;
    this.#timer?.cancel();
    this.#timer = this.#clock.setTimeout(() => socket.destroy(), lingerMs);
    socket.end();
    socket.resume();
  };

  readonly #handleNext = (): void => {
    // None waits if the connection was closed meanwhile.
    if (!this.socket.writable) return;
    const next = this.#waiting.shift();
    next?.charge?.release();
    next?.handle();
  };

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
