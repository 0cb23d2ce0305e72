import type { OutgoingHttpHeaders, ServerHttp2Stream } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import type { WireStatus } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import type { CallContext } from "../calls/call-context.ts";
import { CallLifecycle } from "../calls/call-lifecycle.ts";
import type { ServerCall } from "../calls/server-call.ts";
import { closeAfterResponse, resetStream, resetUnlessClosed } from "./http2-stream.ts";

/*
 * What gRPC is over HTTP/2 is said in
 * https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
 */

/** As grpc-js has them. */
const responseHeaders = {
  ":status": 200,
  "content-type": "application/grpc+proto",
  "grpc-accept-encoding": "identity,deflate,gzip",
  "grpc-encoding": "identity",
};
const withTrailers = { waitForTrailers: true };

/** How much of an answer is given to HTTP/2 at once, in bytes. */
const pieceBytes = 256 * 1024;

/** One for all: a stream that fails also closes, which is what is listened to. */
const ignore = (): void => {};

/**
 * A call straight on its HTTP/2 stream. A frame that thousands of streams get is handed to each
 * as it is, where grpc-js would copy it for each, and an idle stream takes half of the memory.
 */
export class Http2Call implements ServerCall {
  readonly connection: object;
  readonly #stream: ServerHttp2Stream;
  readonly #context: CallContext;
  readonly #lifecycle: CallLifecycle;
  /** Is known once the request has been read. */
  requestBytes = 0;
  #onClosed: (() => void) | undefined;

  /** `timeoutMs` is after how long its client gives up; undefined: never. */
  constructor(stream: ServerHttp2Stream, timeoutMs: number | undefined, context: CallContext) {
    this.#stream = stream;
    // A stream that is over has no session any more, and counts by itself.
    this.connection = stream.session ?? stream;
    this.#context = context;
    this.#lifecycle = new CallLifecycle(context.clock, timeoutMs, () => this.#deadlinePassed());
    stream.on("error", ignore);
    stream.on("close", () => this.#closed());
  }

  get deadline(): number | undefined {
    return this.#lifecycle.deadline;
  }

  get isOver(): boolean {
    return this.#lifecycle.hasEnded || this.#stream.destroyed || this.#stream.closed;
  }

  onOver(listener: () => void): void {
    this.#lifecycle.onOver(listener);
  }

  onClosed(listener: () => void): void {
    if (this.#stream.destroyed) listener();
    else this.#onClosed = listener;
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    if (this.isOver) return;
    this.#respond();
    this.#stream.write(frame, onAccepted);
  }

  answer(parts: FrameParts): FrameParts {
    if (this.isOver) return [];
    this.#lifecycle.end();
    this.#respond();
    resetUnlessClosed(this.#stream, this.#context.responseFlushMs, this.#context.clock);
    this.#write(parts, 0);
    return parts;
  }

  /** Writes the parts from this one on, a piece at a time: what TLS is given at once, it copies at once. */
  #write(parts: FrameParts, first: number): void {
    const stream = this.#stream;
    stream.cork();
    let bytes = 0;
    let last = first;
    for (; last < parts.length - 1; last++) {
      const part = parts[last] as Uint8Array;
      bytes += part.byteLength;
      if (bytes >= pieceBytes) break;
      stream.write(part);
    }
    const part = parts[last] as Uint8Array;
    if (last < parts.length - 1) {
      stream.write(part, (error) => {
        if (error === null || error === undefined) this.#write(parts, last + 1);
      });
    } else {
      stream.write(part);
      this.#endBehind({ "grpc-status": status.OK });
    }
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

  reset(): void {
    this.#lifecycle.end();
    resetStream(this.#stream);
  }

  #closed(): void {
    this.#lifecycle.over();
    const onClosed = this.#onClosed;
    this.#onClosed = undefined;
    onClosed?.();
  }

  #endWith(trailers: OutgoingHttpHeaders, flushMs: number): void {
    this.#lifecycle.end();
    if (this.#stream.headersSent) {
      this.#endBehind(trailers);
    } else {
      this.#stream.respond({ ...responseHeaders, ...trailers }, { endStream: true });
      this.#refuseRest();
    }
    resetUnlessClosed(this.#stream, flushMs, this.#context.clock);
  }

  /** Ends the stream behind what has been written. */
  #endBehind(trailers: OutgoingHttpHeaders): void {
    const stream = this.#stream;
    stream.once("wantTrailers", () => {
      stream.sendTrailers(trailers);
      this.#refuseRest();
    });
    stream.end();
  }

  /** All is said, and what the client may still send is not wanted (RFC 9113, 8.1). */
  #refuseRest(): void {
    if (!this.#stream.readableEnded) closeAfterResponse(this.#stream, this.#context.clock);
  }

  #respond(): void {
    if (!this.#stream.headersSent) this.#stream.respond(responseHeaders, withTrailers);
  }

  #deadlinePassed(): void {
    const details = "Deadline exceeded";
    this.end({ code: status.DEADLINE_EXCEEDED, details, metadata: new Metadata() });
    this.#lifecycle.over();
  }
}
