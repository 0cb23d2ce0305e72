import type { ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import { GrowingBuffer, pinsOthers } from "../../base/growing-buffer.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { refused, tooLarge } from "../calls/refusals.ts";

/** Gets the progress and the result of reading a request. */
export interface RequestListener {
  /** More bytes have arrived. */
  onBytes(): void;
  /** The request is complete, and the client has closed its side. */
  onMessage(message: Buffer, isCompressed: boolean): void;
  /** The request is invalid. The call must end with the status. */
  onRefused(status: WireStatus): void;
}

/** Initial size of the buffer, in bytes, for a request that is larger than its first chunk. */
const firstRoom = 1024;

/**
 * Reads the single message of a request. Errors have the codes and texts of grpc-js. If the stream closes first, the
 * listener gets nothing more, or the result of what arrived until then.
 */
export class RequestReader {
  readonly #stream: ServerHttp2Stream;
  readonly #maxBytes: number;
  readonly #listener: RequestListener;
  readonly #bytes = new GrowingBuffer();

  constructor(stream: ServerHttp2Stream, maxBytes: number, listener: RequestListener) {
    this.#stream = stream;
    this.#maxBytes = maxBytes;
    this.#listener = listener;
    stream.on("data", this.#take);
    stream.on("end", this.#finish);
  }

  /** Memory held, in bytes: what has arrived, and the space allocated for the rest. */
  get held(): number {
    return this.#bytes.memoryBytes;
  }

  /**
   * Copies the bytes if their buffer is far larger: a chunk is a view of everything that was read from the socket at
   * once. Call it for a complete request whose end did not arrive with it.
   */
  own(): void {
    this.#bytes.own();
  }

  /** Whether a complete message has arrived. */
  get isWhole(): boolean {
    return this.#bytes.length >= prefixSize + this.#announced;
  }

  /** Stops reading: further bytes are dropped. Idempotent. */
  stop(): void {
    this.#bytes.clear();
    this.#stream.off("data", this.#take);
    this.#stream.off("end", this.#finish);
    this.#stream.resume();
  }

  readonly #take = (chunk: Buffer): void => {
    const isFirst = this.#bytes.length === 0;
    this.#bytes.append(chunk, prefixSize + this.#announced);
    // Bytes after a complete message are bounded as well.
    const size = Math.max(this.#announced, this.#bytes.length - prefixSize);
    if (size > this.#maxBytes) {
      this.stop();
      this.#listener.onRefused(tooLarge(size, this.#maxBytes));
      return;
    }
    // A chunk is a view of everything that was read from the socket at once, so it is copied.
    if (isFirst && !this.isWhole) this.#bytes.reserve(Math.max(chunk.length, firstRoom));
    this.#listener.onBytes();
  };

  readonly #finish = (): void => {
    const { bytes } = this.#bytes;
    const fault = faultOf(bytes);
    this.stop();
    if (fault === undefined) this.#listener.onMessage(messageOf(bytes), bytes[0] !== 0);
    else this.#listener.onRefused(fault);
  };

  /** The length that the message's prefix states; 0 until the prefix has arrived. */
  get #announced(): number {
    return this.#bytes.length < prefixSize ? 0 : this.#bytes.bytes.readUInt32BE(1);
  }
}

/** The message of a complete request, copied if it would keep a far larger buffer alive. */
function messageOf(bytes: Buffer): Buffer {
  const message = bytes.subarray(prefixSize);
  return pinsOthers(bytes) ? Buffer.from(message) : message;
}

/** The error of a complete request's bytes; undefined if they are exactly one message. */
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
