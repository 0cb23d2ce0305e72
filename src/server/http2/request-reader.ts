import type { ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { refused, tooLarge } from "../calls/refusals.ts";

/** What becomes of a request. */
export interface RequestListener {
  /** More of it has come. */
  onBytes(): void;
  /** It has come whole, and the client has said that this is all. */
  onMessage(message: Buffer, isCompressed: boolean): void;
  /** It is none, and the call is to be ended with this. */
  onRefused(status: WireStatus): void;
}

/** How much is made room for at first, in bytes, where more is to come than the first chunk. */
const firstRoom = 1024;

/**
 * Reads the one message of a request. What is wrong with it is told as grpc-js tells it. Of a stream that
 * is closed before, nothing more is told, or else what came up to then.
 */
export class RequestReader {
  readonly #stream: ServerHttp2Stream;
  readonly #maxBytes: number;
  readonly #listener: RequestListener;
  /** What has come is at its beginning. */
  #bytes: Buffer = Buffer.alloc(0);
  #length = 0;
  #isStopped = false;

  constructor(stream: ServerHttp2Stream, maxBytes: number, listener: RequestListener) {
    this.#stream = stream;
    this.#maxBytes = maxBytes;
    this.#listener = listener;
    stream.on("data", this.#take);
    stream.on("end", this.#finish);
  }

  /** How many bytes are held: what has come, and the room that was made for what is to come. */
  get held(): number {
    return this.#bytes.length;
  }

  /**
   * Lets go of what came together with the first chunk, which holds on to all that the socket was read with at once. To
   * be called for a request that is whole, and whose end did not come with it.
   */
  own(): void {
    if (pinsOthers(this.#bytes)) this.#makeRoom(this.#length);
  }

  /** Whether what has come is a whole message. */
  get isWhole(): boolean {
    return this.#length >= prefixSize + this.#announced;
  }

  /** Reads no more: what still comes is dropped. Idempotent. */
  stop(): void {
    this.#isStopped = true;
    this.#bytes = Buffer.alloc(0);
    this.#stream.off("data", this.#take);
    this.#stream.off("end", this.#finish);
    this.#stream.resume();
  }

  readonly #take = (chunk: Buffer): void => {
    this.#append(chunk);
    // Also what comes after a message that is whole is bounded.
    const size = Math.max(this.#announced, this.#length - prefixSize);
    if (size > this.#maxBytes) {
      this.stop();
      this.#listener.onRefused(tooLarge(size, this.#maxBytes));
      return;
    }
    // A chunk holds on to all that the socket was read with at once.
    if (this.#bytes === chunk && !this.isWhole) this.#makeRoom(Math.max(chunk.length, firstRoom));
    this.#listener.onBytes();
  };

  readonly #finish = (): void => {
    const bytes = this.#bytes.subarray(0, this.#length);
    const fault = faultOf(bytes);
    this.stop();
    if (fault === undefined) this.#listener.onMessage(messageOf(bytes), bytes[0] !== 0);
    else this.#listener.onRefused(fault);
  };

  /** How long the message says that it is; 0 as long as that has not come. */
  get #announced(): number {
    return this.#length < prefixSize || this.#isStopped ? 0 : this.#bytes.readUInt32BE(1);
  }

  /** Most requests are one chunk, which is kept as it is; others are copied together, however small they come. */
  #append(chunk: Buffer): void {
    const needed = this.#length + chunk.length;
    if (this.#length === 0) {
      this.#bytes = chunk;
    } else {
      if (needed > this.#bytes.length) {
        const whole = prefixSize + this.#announced;
        this.#makeRoom(Math.max(needed, Math.min(whole, 2 * this.#bytes.length)));
      }
      chunk.copy(this.#bytes, this.#length);
    }
    this.#length = needed;
  }

  #makeRoom(bytes: number): void {
    const room = Buffer.allocUnsafeSlow(bytes);
    this.#bytes.copy(room, 0, 0, this.#length);
    this.#bytes = room;
  }
}

/** The message of a whole request, which is not to hold on to much that came together with it. */
function messageOf(bytes: Buffer): Buffer {
  const message = bytes.subarray(prefixSize);
  return pinsOthers(bytes) ? Buffer.from(message) : message;
}

/** Whether bytes hold on to far more than themselves. */
function pinsOthers(bytes: Buffer): boolean {
  return bytes.buffer.byteLength > 4 * bytes.length;
}

/** What is wrong with the bytes of a whole request; undefined: they are one message. */
function faultOf(bytes: Buffer): WireStatus | undefined {
  if (bytes.length === 0) return refused(status.UNIMPLEMENTED, "Received no request message");
  const end = prefixSize + (bytes.length < prefixSize ? 0 : bytes.readUInt32BE(1));
  if (end > bytes.length) {
    const parts = `${bytes.length} of ${end} bytes`;
    return refused(status.UNIMPLEMENTED, `Received no whole request message: ${parts}`);
  }
  return end === bytes.length
    ? undefined
    : refused(status.UNIMPLEMENTED, "Received a second request message");
}
