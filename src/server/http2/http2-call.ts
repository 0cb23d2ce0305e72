import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { FrameParts } from "../../wire/encode.ts";
import type { Encoding } from "../../wire/encoding.ts";
import type { WireStatus } from "../../wire/errors.ts";
import type { CarrierCall } from "../calls/methods.ts";
import { refused } from "../calls/refusals.ts";
import { ServedCall } from "../calls/served-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import { responseOf } from "./frames/framed-connection.ts";
import type { FramedStream } from "./frames/framed-stream.ts";
import {
  closeAfterResponse,
  dropUnread,
  endedUnsent,
  resetCodeOf,
  resetStream,
  resetUnlessClosed,
} from "./http2-stream.ts";
import { addressOf } from "./peer.ts";
import { retainedHeaderBytes } from "./request-headers.ts";

/*
 * The protocol is gRPC over HTTP/2: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
 */

/** The same as those of grpc-js. */
const responseHeaders = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-accept-encoding": "identity,deflate,gzip",
  "grpc-encoding": "identity",
};
const withTrailers = { waitForTrailers: true };
/** Headers of a raw call are sent as they are: Node.js adds no date to them. */
const asTheyAre = { waitForTrailers: true, sendDate: false };
const endAsTheyAre = { endStream: true, sendDate: false };

/**
 * A call on its HTTP/2 stream. A frame that thousands of streams share is written to each without a copy, where grpc-js
 * would copy it for each, and an idle stream takes half of the memory.
 */
export class Http2Call extends ServedCall implements CarrierCall {
  readonly connection: object;
  readonly headerBytes: number;
  readonly encoding: Encoding | undefined;
  readonly sendsSeveral = true;
  readonly #stream: ServerHttp2Stream;
  readonly #response: FramedStream;
  readonly #context: ServiceContext;
  /** 0 until the request has been read. */
  requestBytes = 0;
  isMidMessage = false;
  /** Whether its client may do it again without knowing whether it was done. */
  isRepeatable = false;
  onDeadline: (() => void) | undefined;

  /** `timeoutMs` is the client's timeout in milliseconds; undefined: none. */
  constructor(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    timeoutMs: number | undefined,
    context: ServiceContext,
  ) {
    super(context, timeoutMs);
    this.#stream = stream;
    this.headerBytes = retainedHeaderBytes(headers);
    this.encoding = context.compressor?.encodingFor(headers["grpc-accept-encoding"]?.toString());
    this.#response = responseOf(stream);
    // A closed stream has no session, so it counts as a connection of its own.
    this.connection = stream.session ?? stream;
    this.#context = context;
    stream.on("aborted", dropUnread);
    stream.on("close", () => context.callClosings.add(() => this.#streamClosed()));
  }

  get address(): string {
    return addressOf(this.#stream);
  }

  get isOver(): boolean {
    return this.hasEnded || this.#stream.destroyed || this.#stream.closed;
  }

  get request(): ServerHttp2Stream {
    return this.#stream;
  }

  protected get isClosed(): boolean {
    return this.#stream.destroyed;
  }

  sendAtOnce(frame: Uint8Array, isFollowed: boolean): boolean {
    // It knows whether the stream is open, and that the headers are sent.
    return !this.hasEnded && this.#response.writeAtOnce(frame, isFollowed);
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    this.#respond();
    this.#response.write(frame, onAccepted);
  }

  sendParts(parts: FrameParts, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    this.#respond();
    this.#response.writeParts(parts, onAccepted);
  }

  withdraw(): boolean {
    return !this.isOver && this.#response.withdraw();
  }

  respond(parts: FrameParts): FrameParts {
    if (this.isOver) return [];
    this.ended(status.OK);
    // With headers of another protocol the client expects no trailers.
    const isOther = this.#stream.headersSent;
    this.#respond();
    const { clock, slowClients } = this.#context;
    const { responseFlushMs } = this.#context.limits;
    const onReset = (): void => slowClients.ended(this, { acceptedNothingMs: responseFlushMs });
    resetUnlessClosed(this.#stream, responseFlushMs, clock, onReset, this.#slowCode);
    this.#response.writeParts(parts);
    if (isOther) endedUnsent(this.#stream, status.OK);
    this.#endBehind(isOther ? {} : { "grpc-status": status.OK });
    return parts;
  }

  finish(last: Uint8Array, code: status): void {
    if (this.isOver) return;
    this.ended(code);
    endedUnsent(this.#stream, code);
    if (last.length > 0) this.#response.append(last);
    this.#endBehind({});
    this.#resetUnlessClosed(this.#context.limits.endFlushMs);
  }

  end({ code, details, metadata }: WireStatus): void {
    if (this.isOver) return;
    this.ended(code);
    if (this.isMidMessage) {
      this.resetWith(resetCodeOf(code, this.isRepeatable));
      return;
    }
    const trailers = {
      "grpc-status": code,
      // Percent-encoded where HTTP/2 does not allow a character, as grpc-js does it.
      "grpc-message": encodeURI(details),
      ...metadata.toHttp2Headers(),
    };
    this.#endWith(trailers, this.#context.limits.endFlushMs);
  }

  closeConnection(): void {
    this.#stream.session?.close();
  }

  reset(): void {
    this.ended(this.isRepeatable ? status.UNAVAILABLE : status.RESOURCE_EXHAUSTED);
    resetStream(this.#stream, this.#slowCode);
  }

  sendHeaders(headers: OutgoingHttpHeaders): void {
    if (this.isOver || this.#stream.headersSent) return;
    this.#stream.respond(headers, asTheyAre);
  }

  sendTrailers(trailers: OutgoingHttpHeaders): void {
    if (this.isOver) return;
    this.ended(Number(trailers["grpc-status"] ?? status.UNKNOWN));
    if (this.#stream.headersSent) {
      this.#endBehind(trailers);
    } else {
      this.#stream.respond(trailers, endAsTheyAre);
      this.#refuseRest();
    }
    // The trailers are behind bytes that the operating system may not have sent yet.
    this.#resetUnlessClosed(this.#context.limits.responseFlushMs);
  }

  resetWith(code: number): void {
    this.ended(status.UNAVAILABLE);
    resetStream(this.#stream, code);
  }

  /**
   * HTTP/2 error code with which it is reset if its client accepts too little. Clients see UNAVAILABLE, after which those
   * of etcd try again, or RESOURCE_EXHAUSTED, which is final for them.
   */
  get #slowCode(): number {
    return resetCodeOf(status.RESOURCE_EXHAUSTED, this.isRepeatable);
  }

  #streamClosed(): void {
    this.#response.close();
    this.closed();
  }

  #endWith(trailers: OutgoingHttpHeaders, flushMs: number): void {
    if (this.#stream.headersSent) {
      this.#endBehind(trailers);
    } else {
      this.#stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
      this.#refuseRest();
    }
    this.#resetUnlessClosed(flushMs);
  }

  #resetUnlessClosed(ms: number): void {
    resetUnlessClosed(this.#stream, ms, this.#context.clock, undefined, this.#slowCode);
  }

  /** Ends the stream behind what has been written. */
  #endBehind(trailers: OutgoingHttpHeaders): void {
    this.#response.end(trailers, () => this.#refuseRest());
  }

  /** The response is complete, so the rest of the request is refused (RFC 9113, 8.1). */
  #refuseRest(): void {
    if (!this.#stream.readableEnded) closeAfterResponse(this.#stream, this.#context.clock);
  }

  #respond(): void {
    if (this.#stream.headersSent) return;
    const { encoding } = this;
    const headers =
      encoding === undefined
        ? responseHeaders
        : { ...responseHeaders, "grpc-encoding": encoding.name };
    this.#stream.respond(headers, withTrailers);
  }

  protected deadlinePassed(): void {
    const code = status.DEADLINE_EXCEEDED;
    if (this.onDeadline !== undefined) {
      this.onDeadline();
    } else if (this.isMidMessage) {
      // The client's deadline has passed as well, so it cancels the call and knows why. Gets a reset if it does not.
      this.ended(code);
      endedUnsent(this.#stream, code);
      const { clock, limits } = this.#context;
      const resetCode = resetCodeOf(code, this.isRepeatable);
      resetUnlessClosed(this.#stream, limits.endFlushMs, clock, undefined, resetCode);
    } else {
      // The text of gRPC for Go, thus of etcd, whose clients may get it a moment before their own deadline passes.
      this.end(refused(code, "context deadline exceeded", "DEADLINE_EXCEEDED"));
    }
  }
}
