import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { ownBytes } from "../../base/growing-buffer.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import { MessageSender } from "../../server/kernel/message-sender.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import { responseHeaders, responseTrailers } from "./metadata.ts";

/** Replaces a unary response. Gets and returns it with gRPC's framing; undefined: it is not what it should be. */
export type Rewrite = (response: Buffer) => Buffer | undefined;

/** What a response needs of its call. */
export interface ResponseListener {
  /** Gets the beginning of each message: see `MessageStarts`. */
  readonly onStart: (start: Buffer) => void;
  /** Absent: the response is passed on as it comes. */
  readonly rewrite: Rewrite | undefined;
  /** The call has got all of the response, or what it can get of it. `trailers` are etcd's. */
  readonly onEnd: (trailers: OutgoingHttpHeaders) => void;
  /** etcd has ended its stream without trailers, and the client has accepted what came before. */
  readonly onCut: (rstCode: number) => void;
}

/** How many bytes of a message are looked at: a ResponseHeader, also one that is nested, takes at most 60. */
const maxStartBytes = 64;

/** Maximum size of a response that is rewritten, in bytes. */
const maxRewrittenBytes = 1024 ** 2;

/**
 * Passes a response on as it comes: headers, bytes, trailers. The next bytes are read when the client's flow control has
 * accepted those before, so a slow client slows only its own stream at etcd.
 */
export class ResponseRelay extends MessageSender<RelayedCall> {
  /** With what waits. Most responses are accepted long before that. */
  protected override readonly isCountedIfStuck = true;
  readonly #upstream: ClientHttp2Stream;
  readonly #listener: ResponseListener;
  readonly #starts: MessageStarts;
  /** Size of what was sent last. */
  #lastBytes = 0;
  #hasBegun = false;
  #hasEnded = false;
  /** The HTTP/2 error code with which etcd has ended its stream; undefined: it has not, or behind trailers. */
  #rstCode: number | undefined;
  #trailers: OutgoingHttpHeaders | undefined;
  /** The response so far, if it is rewritten. */
  #collected: Buffer = Buffer.alloc(0);

  constructor(
    call: RelayedCall,
    upstream: ClientHttp2Stream,
    context: CallContext,
    listener: ResponseListener,
  ) {
    super(call, context);
    this.#upstream = upstream;
    this.#listener = listener;
    this.#starts = new MessageStarts(listener.onStart);
    upstream.on("response", this.#onHeaders);
    upstream.on("trailers", (trailers: IncomingHttpHeaders) => {
      this.#trailers = responseTrailers(trailers);
    });
    upstream.on("readable", () => this.pump());
    upstream.on("end", () => {
      this.#hasEnded = true;
      this.pump();
    });
    upstream.on("close", this.#onClose);
  }

  /** Whether etcd has responded anything. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** What is held because the client has not accepted it, or may not get it yet, in bytes. */
  override get heldBytes(): number {
    if (!this.isBlocked) return 0;
    return (this.outstanding ? this.#lastBytes : 0) + this.#upstream.readableLength;
  }

  /** Passes nothing more on, and cancels the call at etcd unless it has ended. Idempotent. */
  stop(): void {
    this.close();
    if (!this.#upstream.closed) this.#upstream.close(constants.NGHTTP2_CANCEL);
  }

  protected override get waitsFor(): "nothing" | "rate" {
    return this.#upstream.readableLength > 0 ? "rate" : "nothing";
  }

  /** Everything that has arrived, at once. */
  protected override next(): FrameParts | undefined {
    for (;;) {
      const bytes = this.#upstream.read() as Buffer | null;
      if (bytes === null) return this.#finish();
      this.#starts.pass(bytes);
      if (this.#listener.rewrite === undefined) {
        this.call.isMidMessage = this.#starts.isMidMessage;
        return [ownBytes(bytes)];
      }
      // Until there is nothing to read, which is when the end is announced.
      if (this.#collected.length + bytes.length > maxRewrittenBytes) return this.#fail();
      this.#collected = Buffer.concat([this.#collected, bytes]);
    }
  }

  protected override onSent({ byteLength }: Uint8Array): void {
    this.#lastBytes = byteLength;
  }

  /** It is reset as the call says, since etcd's own status did not come. */
  protected override slowStatus(): undefined {
    this.stop();
  }

  readonly #onHeaders = (headers: IncomingHttpHeaders, flags: number): void => {
    if (this.isOver) return;
    this.#hasBegun = true;
    const passed = responseHeaders(headers);
    if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) this.#end(passed);
    else this.call.sendHeaders(passed);
  };

  /** Ends the call if etcd has. The client has accepted everything. Returns what is still to be sent. */
  #finish(): FrameParts | undefined {
    if (this.#rstCode !== undefined) {
      this.close();
      this.#listener.onCut(this.#rstCode);
      return undefined;
    }
    const { rewrite } = this.#listener;
    if (!this.#hasEnded) return undefined;
    if (rewrite !== undefined && this.#collected.length > 0) {
      const rewritten = rewrite(this.#collected);
      this.#collected = Buffer.alloc(0);
      return rewritten === undefined ? this.#fail() : [rewritten];
    }
    if (this.#trailers !== undefined) this.#end(this.#trailers);
    return undefined;
  }

  #end(trailers: OutgoingHttpHeaders): void {
    this.close();
    this.call.sendTrailers(trailers);
    this.#listener.onEnd(trailers);
  }

  /** A response that can't be rewritten. */
  #fail(): undefined {
    this.stop();
    this.call.resetWith(constants.NGHTTP2_INTERNAL_ERROR);
  }

  readonly #onClose = (): void => {
    // With trailers all of the response has arrived, and the rest may still have to be sent.
    if (this.#trailers !== undefined) this.#hasEnded = true;
    else this.#rstCode = this.#upstream.rstCode ?? constants.NGHTTP2_NO_ERROR;
    // What had arrived can still be read, though Node.js no longer announces it.
    this.pump();
  };
}

/** Finds out how the messages of a response begin, and whether one is incomplete, as its bytes pass. */
export class MessageStarts {
  readonly #onStart: (start: Buffer) => void;
  /** The beginning of the current message, with gRPC's prefix, as far as it has passed. */
  readonly #start = Buffer.alloc(prefixSize + maxStartBytes);
  #length = 0;
  /** Number of bytes of the current message that are yet to pass and are not looked at. */
  #rest = 0;

  /** `onStart` gets the beginning of each message, with gRPC's prefix. It may read the bytes until it returns. */
  constructor(onStart: (start: Buffer) => void) {
    this.#onStart = onStart;
  }

  /** Whether a part of a message has passed. */
  get isMidMessage(): boolean {
    return this.#rest > 0 || this.#length > 0;
  }

  /** The next bytes of the response. */
  pass(bytes: Buffer): void {
    for (let at = 0; at < bytes.length; ) {
      const skipped = Math.min(this.#rest, bytes.length - at);
      this.#rest -= skipped;
      at += skipped;
      if (this.#rest === 0) at += this.#collect(bytes, at);
    }
  }

  /** Returns the number of bytes that it has taken. */
  #collect(bytes: Buffer, from: number): number {
    const end = from + this.#wanted - this.#length;
    const taken = bytes.copy(this.#start, this.#length, from, end);
    this.#length += taken;
    if (this.#length < prefixSize || this.#length < this.#wanted) return taken;
    this.#onStart(this.#start.subarray(0, this.#length));
    this.#rest = this.#size - this.#length;
    this.#length = 0;
    return taken;
  }

  /** Size of the current message with its prefix, which has passed. */
  get #size(): number {
    return prefixSize + this.#start.readUInt32BE(1);
  }

  get #wanted(): number {
    return this.#length < prefixSize ? prefixSize : Math.min(this.#size, this.#start.length);
  }
}
