import type { IncomingHttpHeaders, OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import type { Timer } from "../clock.ts";
import type { WireStatus } from "../wire/errors.ts";
import { type CallContext, resetUnlessClosed } from "./calls.ts";
import { timeoutOf } from "./http2-stream.ts";
import type { Frame, ServerCall } from "./server-call.ts";

/*
 * What gRPC is over HTTP/2 is said in
 * https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
 */

/** As grpc-js has them, which serves those that compress. */
const responseHeaders = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-accept-encoding": "identity,deflate,gzip",
  "grpc-encoding": "identity",
};
const withTrailers = { waitForTrailers: true };

/** One for all: a stream that fails also closes, which is what is listened to. */
const ignore = (): void => {};

/**
 * A call straight on its HTTP/2 stream. A frame that thousands of streams get is handed to each
 * as it is, where grpc-js would copy it for each, and an idle stream takes half of the memory.
 */
export class Http2Call implements ServerCall {
  readonly deadline: number | undefined;
  readonly #stream: ServerHttp2Stream;
  readonly #context: CallContext;
  readonly #timer: Timer | undefined;
  #onOver: (() => void) | undefined;
  #hasEnded = false;

  constructor(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, context: CallContext) {
    this.#stream = stream;
    this.#context = context;
    const timeoutMs = timeoutOf(headers);
    if (timeoutMs !== undefined) {
      const { clock } = context;
      this.deadline = clock.now() + timeoutMs;
      this.#timer = clock.setTimeout(() => this.#deadlinePassed(), timeoutMs);
    }
    stream.on("error", ignore);
    stream.on("close", () => this.#over());
  }

  get isOver(): boolean {
    return this.#hasEnded || this.#stream.destroyed || this.#stream.closed;
  }

  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    this.#respond();
    this.#stream.write(frame, onAccepted);
  }

  answer(frame: Frame): void {
    if (this.isOver) return;
    const stream = this.#stream;
    this.#respond();
    stream.cork();
    for (const part of frame) stream.write(part);
    this.#endWith({ "grpc-status": status.OK }, this.#context.responseFlushMs);
    stream.uncork();
  }

  end({ code, details, metadata }: WireStatus): void {
    if (this.isOver) return;
    const trailers = {
      "grpc-status": code,
      // As grpc-js writes it: what may not stand in a header, percent-encoded.
      "grpc-message": encodeURI(details),
      ...metadata.toHttp2Headers(),
    };
    this.#endWith(trailers, this.#context.endFlushMs);
  }

  #endWith(trailers: OutgoingHttpHeaders, flushMs: number): void {
    this.#hasEnded = true;
    this.#timer?.cancel();
    const stream = this.#stream;
    if (stream.headersSent) {
      stream.once("wantTrailers", () => stream.sendTrailers(trailers));
      stream.end();
    } else {
      stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
    }
    resetUnlessClosed(stream, flushMs, this.#context.clock);
  }

  #respond(): void {
    if (!this.#stream.headersSent) this.#stream.respond(responseHeaders, withTrailers);
  }

  #deadlinePassed(): void {
    const details = "Deadline exceeded";
    this.end({ code: status.DEADLINE_EXCEEDED, details, metadata: new Metadata() });
    this.#over();
  }

  #over(): void {
    this.#timer?.cancel();
    const onOver = this.#onOver;
    this.#onOver = undefined;
    onOver?.();
  }
}
