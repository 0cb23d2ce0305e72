import type { ServerHttp2Stream } from "node:http2";
import { Metadata, status } from "@grpc/grpc-js";
import { prefixSize } from "../wire/encode.ts";
import type { WireStatus } from "../wire/errors.ts";

/** What becomes of a request. */
export interface RequestListener {
  /** So many more bytes of it have come. */
  onBytes(count: number): void;
  /** It has come whole, and the client has said that this is all. */
  onMessage(message: Buffer): void;
  /** It is none, and the call is to be ended with this. */
  onRefused(status: WireStatus): void;
}

/** How much is made room for at first, in bytes, where more is to come than the first chunk. */
const firstRoom = 1024;

/**
 * Reads the one message of a request that is not compressed. What is wrong with it is told as grpc-js tells
 * it. Of a stream that is closed before, nothing more is told, or else what came up to then.
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

  /** In bytes. */
  get received(): number {
    return this.#length;
  }

  /** Reads no more: what still comes is dropped. Harmless when called twice. */
  stop(): void {
    this.#isStopped = true;
    this.#bytes = Buffer.alloc(0);
    this.#stream.off("data", this.#take);
    this.#stream.off("end", this.#finish);
    this.#stream.resume();
  }

  readonly #take = (chunk: Buffer): void => {
    this.#append(chunk);
    this.#listener.onBytes(chunk.length);
    // Also what comes after a message that is whole is bounded.
    const size = Math.max(this.#announced, this.#length - prefixSize);
    if (size <= this.#maxBytes || this.#isStopped) return;
    this.stop();
    this.#listener.onRefused(tooLarge(size, this.#maxBytes));
  };

  readonly #finish = (): void => {
    const bytes = this.#bytes.subarray(0, this.#length);
    const fault = faultOf(bytes);
    this.stop();
    if (fault === undefined) this.#listener.onMessage(bytes.subarray(prefixSize));
    else this.#listener.onRefused(fault);
  };

  /** How long the message says that it is; 0 as long as that has not come. */
  get #announced(): number {
    const isThere = this.#length >= prefixSize && !this.#isStopped;
    return isThere ? this.#bytes.readUInt32BE(1) : 0;
  }

  /** Most requests are one chunk, which is kept as it is; others are copied together, however small they come. */
  #append(chunk: Buffer): void {
    const needed = this.#length + chunk.length;
    if (this.#length === 0) {
      this.#bytes = chunk;
    } else {
      if (needed > this.#bytes.length) {
        const whole = prefixSize + this.#announced;
        const room = Math.max(needed, Math.min(whole, 2 * this.#bytes.length), firstRoom);
        const bytes = Buffer.allocUnsafe(room);
        this.#bytes.copy(bytes, 0, 0, this.#length);
        this.#bytes = bytes;
      }
      chunk.copy(this.#bytes, this.#length);
    }
    this.#length = needed;
  }
}

/** What is wrong with the bytes of a whole request; undefined: they are one message. */
function faultOf(bytes: Buffer): WireStatus | undefined {
  if (bytes.length === 0) return refused(status.UNIMPLEMENTED, "Received no request message");
  const end = prefixSize + (bytes.length < prefixSize ? 0 : bytes.readUInt32BE(1));
  if (end > bytes.length) {
    const parts = `${bytes.length} of ${end} bytes`;
    return refused(status.UNIMPLEMENTED, `Received no whole request message: ${parts}`);
  }
  if (bytes[0] !== 0) {
    return refused(status.INTERNAL, "Received a compressed request without a grpc-encoding");
  }
  if (end === bytes.length) return undefined;
  return refused(status.UNIMPLEMENTED, "Received a second request message");
}

function tooLarge(size: number, maxBytes: number): WireStatus {
  return refused(
    status.RESOURCE_EXHAUSTED,
    `Received message larger than max (${size} vs ${maxBytes})`,
  );
}

/** A status that gRPC itself would give, without a reason of ours. */
export function refused(code: status, details: string): WireStatus {
  return { code, details, metadata: new Metadata() };
}
