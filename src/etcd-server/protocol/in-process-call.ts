import { constants, type IncomingHttpHeaders } from "node:http2";
import { Readable } from "node:stream";
import { gunzip } from "node:zlib";
import { status } from "@grpc/grpc-js";
import type { UpstreamStream } from "../../etcd/client/upstream-connection.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { MessageReader } from "../../wire/message-reader.ts";

/** Maximum size of a request, in bytes: as etcd, 512 KiB above that of a write. */
const maxRequestBytes = 2 * 1024 ** 2;

/** Size of responses that the caller has not read above which there is no room for more, in bytes. */
const maxUnreadBytes = 64 * 1024;

const responseHeaders: IncomingHttpHeaders = { "content-type": "application/grpc" };

/** What answers a call. */
export interface CallHandler {
  /** A request, without gRPC's prefix. */
  take(message: Buffer): void;
  /** No request follows. Not called while requests are paused. */
  requestsEnded?(): void;
  /** The caller has read what there was no room behind. */
  onRoom?(): void;
  /** The call has ended. */
  closed?(): void;
}

/**
 * A call within this process. Its caller has it as a stream of bytes, as if it were one of HTTP/2; its handler as requests and
 * responses. None of them waits for another call: a caller that reads nothing makes only its own handler wait.
 */
export class InProcessCall extends Readable implements UpstreamStream {
  readonly #encoding: string;
  readonly #requests = new MessageReader();
  /** Called when the requests that have arrived are handled. */
  #onHandled: (() => void)[] = [];
  #handler: CallHandler | undefined;
  #isDeliverySoon = false;
  #arePaused = false;
  #isInflating = false;
  #haveEnded = false;
  #hasBegun = false;
  #hasRoom = true;
  #isOver = false;
  rstCode: number = constants.NGHTTP2_NO_ERROR;

  /** `encoding`: of compressed requests, as the caller names it. */
  constructor(encoding: string) {
    super({ highWaterMark: maxUnreadBytes });
    this.#encoding = encoding;
  }

  /** For its caller: sends bytes of requests. Calls `onSent` when they are handled. Returns whether to send more. */
  write(bytes: Buffer, onSent?: () => void): boolean {
    if (this.#isOver || this.destroyed) return true;
    this.#requests.add(bytes);
    if (onSent !== undefined) this.#onHandled.push(onSent);
    this.#deliverSoon();
    return !this.#arePaused;
  }

  get writableNeedDrain(): boolean {
    return this.#arePaused;
  }

  /** For its caller: no request follows. */
  end(): void {
    this.#haveEnded = true;
    this.#deliverSoon();
  }

  /** For its caller: cancels it. Idempotent. */
  close(rstCode: number): void {
    if (this.destroyed) return;
    this.rstCode = rstCode;
    this.destroy();
  }

  /** Begins to deliver requests, unless it has ended. */
  serve(handler: CallHandler): void {
    if (this.#isOver || this.destroyed) return;
    this.#handler = handler;
    this.#deliver();
  }

  /** Delivers no requests until `resumeRequests`. */
  pauseRequests(): void {
    this.#arePaused = true;
  }

  resumeRequests(): void {
    if (!this.#arePaused) return;
    this.#arePaused = false;
    this.#deliverSoon();
  }

  /** Sends the headers of the response. Idempotent. */
  sendHeaders(): void {
    if (this.#hasBegun || this.#isOver) return;
    this.#hasBegun = true;
    this.emit("response", responseHeaders, 0);
  }

  /** Sends responses, with gRPC's prefix. Returns whether there is room for more; if not, `onRoom` is called later. */
  respond(frames: FrameParts): boolean {
    if (this.#isOver || this.destroyed) return true;
    this.sendHeaders();
    for (const frame of frames) this.#hasRoom = this.push(frame);
    return this.#hasRoom;
  }

  /** Ends it with this status, behind the responses. Only the first end counts. */
  finish(code: status, details: string = ""): void {
    if (this.#isOver || this.destroyed) return;
    const trailers: IncomingHttpHeaders = {
      "grpc-status": String(code),
      ...(code !== status.OK && { "grpc-message": encodeURI(details) }),
    };
    this.#isOver = true;
    if (this.#hasBegun) this.emit("trailers", trailers);
    else {
      const headers = { ...responseHeaders, ...trailers };
      this.emit("response", headers, constants.NGHTTP2_FLAG_END_STREAM);
    }
    this.push(null);
    this.#closed();
  }

  override _read(): void {
    if (this.#hasRoom) return;
    this.#hasRoom = true;
    this.#handler?.onRoom?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    this.#closed();
    callback(error);
  }

  #closed(): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#requests.clear();
    this.#onHandled = [];
    handler?.closed?.();
  }

  /** Not within a call of its caller, which may not expect a response yet. */
  #deliverSoon(): void {
    if (this.#isDeliverySoon || this.#handler === undefined) return;
    this.#isDeliverySoon = true;
    process.nextTick(() => {
      this.#isDeliverySoon = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    const requests = this.#requests;
    while (!this.#arePaused && !this.#isInflating && this.#handler !== undefined) {
      const { isCompressed } = requests;
      const message = this.#isTooLarge ? undefined : requests.next();
      if (message === undefined) break;
      if (isCompressed) this.#inflate(message);
      else this.#handler.take(message);
    }
    if (this.#arePaused || this.#isInflating || this.#handler === undefined) return;
    if (requests.bytes.length === 0) for (const handled of this.#onHandled.splice(0)) handled();
    if (this.#haveEnded) this.#handler?.requestsEnded?.();
    else this.emit("drain");
  }

  /** Whether the next request is too large, which ends the call. The texts here are those of gRPC for Go, and so of etcd. */
  get #isTooLarge(): boolean {
    const { size } = this.#requests;
    if (size <= maxRequestBytes) return false;
    const details = `grpc: received message larger than max (${size} vs. ${maxRequestBytes})`;
    this.finish(status.RESOURCE_EXHAUSTED, details);
    return true;
  }

  #inflate(message: Buffer): void {
    if (this.#encoding !== "gzip") {
      const encoding = JSON.stringify(this.#encoding);
      const details = `grpc: Decompressor is not installed for grpc-encoding ${encoding}`;
      this.finish(status.UNIMPLEMENTED, details);
      return;
    }
    this.#isInflating = true;
    gunzip(message, { maxOutputLength: maxRequestBytes }, (error, inflated) => {
      this.#isInflating = false;
      if (error === null) this.#handler?.take(inflated);
      else if (Reflect.get(error, "code") === "ERR_BUFFER_TOO_LARGE") {
        const details = `grpc: received message after decompression larger than max ${maxRequestBytes}`;
        this.finish(status.RESOURCE_EXHAUSTED, details);
      } else {
        const details = `grpc: failed to decompress the received message: ${error.message}`;
        this.finish(status.INTERNAL, details);
      }
      this.#deliver();
    });
  }
}
