import type { IncomingMessage, ServerResponse } from "node:http";
import type { OutgoingHttpHeaders } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Timer } from "../../base/clock.ts";
import type { FrameParts } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CarrierCall } from "../calls/methods.ts";
import { ServedCall } from "../calls/served-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import { peerNameOf } from "../http2/peer.ts";
import { headerBytes } from "../http2/request-headers.ts";
import type { Http1Connection } from "./http1-connection.ts";

/** A call by HTTP/1, which carries one of another protocol. HTTP/1 has no reset: the connection is closed instead. */
export class Http1Call extends ServedCall implements CarrierCall {
  readonly connection: Http1Connection;
  readonly request: IncomingMessage;
  readonly headerBytes: number;
  requestBytes = 0;
  isMidMessage = false;
  onDeadline: (() => void) | undefined;
  readonly #response: ServerResponse<IncomingMessage>;
  readonly #context: ServiceContext;
  #flush: Timer | undefined;

  /**
   * `timeoutMs` is the client's timeout in milliseconds; undefined: none. `isStreaming`: the call ends when its client closes
   * its direction of the connection, as it does with the connection itself. Others may still wait for the response.
   */
  constructor(
    connection: Http1Connection,
    response: ServerResponse<IncomingMessage>,
    { timeoutMs, isStreaming }: { timeoutMs: number | undefined; isStreaming: boolean },
    context: ServiceContext,
  ) {
    super(context, timeoutMs);
    this.connection = connection;
    this.request = response.req;
    this.headerBytes = headerBytes(response.req.headers);
    this.#response = response;
    this.#context = context;
    const { socket } = connection;
    if (isStreaming) socket.once("end", this.#clientGone);
    response.on("close", () => {
      socket.off("end", this.#clientGone);
      // What is left of the request is read and dropped.
      this.request.removeAllListeners("data").resume();
      context.callClosings.add(() => this.#responseClosed());
    });
  }

  get address(): string {
    return peerNameOf(this.connection.socket);
  }

  get isOver(): boolean {
    return this.hasEnded || this.#response.closed || this.connection.destroyed;
  }

  protected get isClosed(): boolean {
    return this.#response.closed;
  }

  protected deadlinePassed(): void {
    this.onDeadline?.();
  }

  sendAtOnce(): boolean {
    return false;
  }

  send(bytes: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (!this.isOver) this.#response.write(bytes, onAccepted);
  }

  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void {
    this.send(Buffer.concat(parts), onAccepted);
  }

  withdraw(): boolean {
    return false;
  }

  respond(parts: FrameParts): FrameParts {
    if (this.isOver) return [];
    for (const part of parts) this.#response.write(part);
    this.#end(status.OK, true);
    return parts;
  }

  end({ code }: WireStatus): void {
    this.sendTrailers({ "grpc-status": code });
  }

  finish(last: Uint8Array, code: status): void {
    if (this.isOver) return;
    this.#response.write(last);
    this.#end(code, false);
  }

  closeConnection(): void {
    this.connection.close();
  }

  reset(): void {
    this.ended(status.RESOURCE_EXHAUSTED);
    this.connection.destroy();
  }

  sendHeaders(headers: OutgoingHttpHeaders): void {
    if (this.isOver || this.#response.headersSent) return;
    const { ":status": code = 200, ...others } = headers;
    // What the client still sends would have to be read before its next request.
    if (!this.request.complete || this.connection.isLast) {
      this.connection.endBehindCurrent();
      this.#response.setHeader("connection", "close");
    }
    this.#response.writeHead(Number(code), others);
  }

  sendTrailers(trailers: OutgoingHttpHeaders): void {
    if (!this.isOver) this.#end(Number(trailers["grpc-status"] ?? status.UNKNOWN), false);
  }

  resetWith(): void {
    this.ended(status.UNAVAILABLE);
    this.connection.destroy();
  }

  readonly #clientGone = (): void => this.connection.destroy();

  /** Ends it behind what was sent. A client that does not accept that in time loses its connection. */
  #end(code: status, isResponse: boolean): void {
    this.ended(code);
    const { clock, limits, slowClients } = this.#context;
    const { responseFlushMs } = limits;
    this.#flush = clock.setTimeout(() => {
      if (isResponse) slowClients.ended(this, { acceptedNothingMs: responseFlushMs });
      this.connection.destroy();
    }, responseFlushMs);
    this.#response.end();
  }

  #responseClosed(): void {
    this.#flush?.cancel();
    this.closed();
  }
}
