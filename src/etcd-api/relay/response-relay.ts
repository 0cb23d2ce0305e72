import {
  type ClientHttp2Stream,
  constants,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
} from "node:http2";
import { ownBytes } from "../../base/growing-buffer.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { SendPacing } from "../../server/limits/send-pacing.ts";
import { MessageStarts } from "./message-starts.ts";
import { responseHeaders, responseTrailers } from "./metadata.ts";

/** Replaces a unary response. Gets and returns it with gRPC's framing; undefined: it is not what it should be. */
export type Rewrite = (response: Buffer) => Buffer | undefined;

/** What a response needs of its call. */
export interface ResponseListener {
  /** Delays responses while more was sent to their caller than it may get per second. */
  readonly pacing: Pick<SendPacing, "charge" | "exceededBy" | "wait">;
  /** Gets the beginning of each message: see `MessageStarts`. */
  readonly onStart: (start: Buffer) => void;
  /** Absent: the response is passed on as it comes. */
  readonly rewrite: Rewrite | undefined;
  /** The call has got all of the response, or what it can get of it. `trailers` are etcd's. */
  readonly onEnd: (trailers: OutgoingHttpHeaders) => void;
  /** etcd has ended its stream without trailers, and the client has accepted what came before. */
  readonly onCut: (rstCode: number) => void;
}

/** Maximum size of a response that is rewritten, in bytes. */
const maxRewrittenBytes = 1024 ** 2;

/**
 * Passes a response on as it comes: headers, bytes, trailers. The next bytes are read when the client's flow control has
 * accepted those before, so a slow client slows only its own stream at etcd.
 */
export class ResponseRelay {
  readonly #call: RelayedCall;
  readonly #upstream: ClientHttp2Stream;
  readonly #listener: ResponseListener;
  readonly #starts: MessageStarts;
  #inFlight = 0;
  #isSending = false;
  #isOver = false;
  #hasBegun = false;
  #hasEnded = false;
  /** The HTTP/2 error code with which etcd has ended its stream; undefined: it has not, or behind trailers. */
  #rstCode: number | undefined;
  #trailers: OutgoingHttpHeaders | undefined;
  /** The response so far, if it is rewritten. */
  #collected: Buffer = Buffer.alloc(0);
  /** Stops the wait for the caller's rate; undefined: it does not wait. */
  #stopWaiting: (() => void) | undefined;
  /** Number of times that bytes were sent. */
  sent = 0;

  constructor(call: RelayedCall, upstream: ClientHttp2Stream, listener: ResponseListener) {
    this.#call = call;
    this.#upstream = upstream;
    this.#listener = listener;
    this.#starts = new MessageStarts(listener.onStart);
    upstream.on("response", this.#onHeaders);
    upstream.on("trailers", (trailers: IncomingHttpHeaders) => {
      this.#trailers = responseTrailers(trailers);
    });
    upstream.on("readable", this.#pump);
    upstream.on("end", () => {
      this.#hasEnded = true;
      this.#finish();
    });
    upstream.on("close", this.#onClose);
  }

  /** Whether etcd has responded anything. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Whether the client has not accepted the last bytes yet. */
  get isSending(): boolean {
    return this.#isSending;
  }

  /** Whether it waits because more was sent to its caller than it may get per second. */
  get isPaced(): boolean {
    return this.#stopWaiting !== undefined;
  }

  /** What is held because the client has not accepted it, or may not get it yet, in bytes. */
  get heldBytes(): number {
    if (!this.#isSending && !this.isPaced) return 0;
    return this.#inFlight + this.#upstream.readableLength;
  }

  /** Passes nothing more on, and cancels the call at etcd unless it has ended. Idempotent. */
  stop(): void {
    this.#isOver = true;
    this.#stopWaiting?.();
    this.#stopWaiting = undefined;
    if (!this.#upstream.closed) this.#upstream.close(constants.NGHTTP2_CANCEL);
  }

  readonly #onHeaders = (headers: IncomingHttpHeaders, flags: number): void => {
    if (this.#isOver) return;
    this.#hasBegun = true;
    if ((flags & constants.NGHTTP2_FLAG_END_STREAM) !== 0) {
      this.#isOver = true;
      const trailers = responseHeaders(headers);
      this.#call.sendTrailers(trailers);
      this.#listener.onEnd(trailers);
    } else {
      this.#call.sendHeaders(responseHeaders(headers));
    }
  };

  /** Reads everything that has arrived, at once. */
  readonly #pump = (): void => {
    if (this.#isOver || this.#isSending || this.#waitForRate()) return;
    const bytes = this.#upstream.read() as Buffer | null;
    if (bytes === null) return;
    this.#starts.pass(bytes);
    if (this.#listener.rewrite !== undefined) {
      this.#collect(bytes);
      return;
    }
    this.#call.isMidMessage = this.#starts.isMidMessage;
    this.#send(ownBytes(bytes));
  };

  /** Whether the next bytes have to wait. */
  #waitForRate(): boolean {
    if (this.isPaced) return true;
    const { pacing } = this.#listener;
    const { owner } = this.#call;
    if (this.#upstream.readableLength === 0 || pacing.exceededBy(owner.caller) === undefined) {
      return false;
    }
    this.#stopWaiting = pacing.wait(owner, () => {
      this.#stopWaiting = undefined;
      this.#pump();
      this.#finish();
    });
    return true;
  }

  #send(bytes: Buffer): void {
    this.#listener.pacing.charge(this.#call.owner, bytes.length);
    this.#isSending = true;
    this.#inFlight = bytes.length;
    this.sent++;
    this.#call.send(bytes, this.#onAccepted);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.#isSending = false;
    this.#inFlight = 0;
    if (error !== undefined && error !== null) return;
    this.#pump();
    this.#finish();
  };

  #collect(bytes: Buffer): void {
    if (this.#collected.length + bytes.length > maxRewrittenBytes) {
      this.#fail();
      return;
    }
    this.#collected = Buffer.concat([this.#collected, bytes]);
    // Until there is nothing to read, which is when the end is announced.
    this.#pump();
  }

  /** A response that can't be rewritten. */
  #fail(): void {
    this.stop();
    this.#call.resetWith(constants.NGHTTP2_INTERNAL_ERROR);
  }

  /** Ends the call once the client has accepted everything. */
  #finish(): void {
    if (this.#isOver || this.#isSending || this.isPaced) return;
    if (this.#rstCode !== undefined) {
      this.#isOver = true;
      this.#listener.onCut(this.#rstCode);
      return;
    }
    if (!this.#hasEnded) return;
    const { rewrite } = this.#listener;
    if (rewrite !== undefined && this.#collected.length > 0) {
      const collected = this.#collected;
      this.#collected = Buffer.alloc(0);
      const rewritten = rewrite(collected);
      if (rewritten === undefined) this.#fail();
      else this.#send(rewritten);
      return;
    }
    if (this.#trailers === undefined) return;
    this.#isOver = true;
    this.#call.sendTrailers(this.#trailers);
    this.#listener.onEnd(this.#trailers);
  }

  readonly #onClose = (): void => {
    // With trailers all of the response has arrived, and the rest may still have to be sent.
    if (this.#trailers !== undefined) this.#hasEnded = true;
    else this.#rstCode = this.#upstream.rstCode ?? constants.NGHTTP2_NO_ERROR;
    // What had arrived can still be read, though Node.js no longer announces it.
    this.#pump();
    this.#finish();
  };
}
