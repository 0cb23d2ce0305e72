import type { Server, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Clock, systemClock } from "../../base/clock.ts";
import { byteLowWaterMark, Ledger, type Reservation } from "../kernel/ledger.ts";

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

/** Few clients send a request before they have the response to the previous one. */
const maxPipelined = 4;

/** Maximum size of the responses that are not accepted, of all connections, in bytes. */
const maxUnacceptedBytes = 128 * 1024 ** 2;

/** The requests of a connection whose responses it has not accepted. */
interface Pending {
  count: number;
  readonly held: Set<Reservation>;
}

/**
 * Bounds the requests whose responses are not accepted, in number for each connection, and in bytes for all. HTTP allows to
 * send many at once, and Node.js would build and hold the responses to all of them.
 */
export class PipelinedRequests {
  readonly #pending = new WeakMap<Socket, Pending>();
  readonly #unaccepted: Ledger;

  /** `maxBytes` is the bound of all responses that are not accepted, in bytes. */
  constructor(maxBytes: number = maxUnacceptedBytes) {
    this.#unaccepted = new Ledger({ max: maxBytes, lowWaterMark: byteLowWaterMark });
  }

  /** Size of the responses that are not accepted, in bytes. */
  get unacceptedBytes(): number {
    return this.#unaccepted.total;
  }

  /** Counts a request until its response is accepted. At the bound it closes the connection, and returns false. */
  add(socket: Socket, response: ServerResponse): boolean {
    const pending = this.#pendingOf(socket);
    if (pending.count >= maxPipelined) {
      socket.destroy();
      return false;
    }
    pending.count++;
    response.once("close", () => {
      pending.count--;
    });
    return true;
  }

  /**
   * Counts the bytes of a response until it is accepted, or its connection is closed. At the bound of all connections, those
   * that hold most are closed. Returns whether that of this response is still open.
   */
  hold(response: ServerResponse, bytes: number): boolean {
    const { socket } = response.req;
    if (socket.destroyed) return false;
    const { held } = this.#pendingOf(socket);
    const reservation = this.#unaccepted.reserve(socket, bytes, () => socket.destroy());
    held.add(reservation);
    response.once("close", () => {
      held.delete(reservation);
      reservation.release();
    });
    return !socket.destroyed;
  }

  #pendingOf(socket: Socket): Pending {
    const known = this.#pending.get(socket);
    if (known !== undefined) return known;
    const pending: Pending = { count: 0, held: new Set() };
    this.#pending.set(socket, pending);
    // A response behind another one of its connection has no "close" of its own if it ends with the connection.
    socket.once("close", () => {
      for (const reservation of pending.held) reservation.release();
    });
    return pending;
  }
}
