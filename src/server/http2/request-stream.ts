import type { ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { outOfRequestRoom, refused, tookTooLong, tooLarge } from "../calls/refusals.ts";
import { RefusedRequest, type ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { Inflater } from "./inflater.ts";

/** HTTP/2 flow control window: what a client may send on a stream that is not read from, in bytes. */
const windowBytes = 64 * 1024;

export interface RequestStreamOptions {
  readonly encoding: string;
  readonly inflater: Inflater;
  /** The largest request, in bytes. */
  readonly maxBytes: number;
}

/**
 * Reads the requests of a stream one at a time, on demand. What arrives meanwhile waits in the stream, up to its flow
 * control window. The connection is charged with the window and the largest request for as long as the stream is open.
 */
export class RequestStream {
  readonly #stream: ServerHttp2Stream;
  readonly #call: ServerCall;
  readonly #context: ServiceContext;
  readonly #options: RequestStreamOptions;
  #wake: (() => void) | undefined;

  constructor(
    stream: ServerHttp2Stream,
    call: ServerCall,
    context: ServiceContext,
    options: RequestStreamOptions,
  ) {
    this.#stream = stream;
    this.#call = call;
    this.#context = context;
    this.#options = options;
    const { requestPool } = context;
    const reservation = requestPool.reserve(
      call.connection,
      windowBytes + options.maxBytes,
      // Deferred, since the handler does not have the call yet.
      () => queueMicrotask(() => call.end(outOfRequestRoom(requestPool))),
    );
    const wake = (): void => this.#wake?.();
    stream.on("readable", wake).on("end", wake);
    stream.on("close", () => {
      reservation.release();
      wake();
    });
  }

  /**
   * Reads the next request; undefined: there are no more. Rejects with a `RefusedRequest` if it is invalid or does not
   * arrive within `requestMs`.
   */
  async next(): Promise<Buffer | undefined> {
    const { clock } = this.#context;
    const { requestMs } = this.#context.limits;
    let isLate = false;
    const timer = clock.setTimeout(() => {
      isLate = true;
      this.#wake?.();
    }, requestMs);
    const read = async (size: number): Promise<Buffer> => {
      if (size === 0) return Buffer.alloc(0);
      for (;;) {
        if (isLate) {
          this.#context.defences?.count("slow_request", this.#call.connection);
          throw new RefusedRequest(tookTooLong(requestMs));
        }
        const bytes = this.#stream.read(size) as Buffer | null;
        // Fewer bytes than `size` are the rest before the end.
        if (bytes !== null) return bytes;
        if (this.#stream.readableEnded || this.#stream.destroyed) return Buffer.alloc(0);
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    };
    try {
      const prefix = await read(prefixSize);
      if (prefix.length === 0) return undefined;
      if (prefix.length < prefixSize) throw cutOff();
      const size = prefix.readUInt32BE(1);
      const { maxBytes } = this.#options;
      if (size > maxBytes) throw new RefusedRequest(tooLarge(size, maxBytes));
      const message = await read(size);
      if (message.length < size) throw cutOff();
      return prefix[0] === 0 ? message : await this.#inflate(message);
    } finally {
      timer.cancel();
    }
  }

  #inflate(message: Buffer): Promise<Buffer> {
    const { encoding, inflater, maxBytes } = this.#options;
    return new Promise((resolve, reject) => {
      const onRefused = (why: WireStatus): void => reject(new RefusedRequest(why));
      inflater.add({
        owner: this.#call.connection,
        encoding,
        message,
        maxBytes,
        onTurn: () => true,
        onInflated: resolve,
        onRefused,
      });
    });
  }
}

function cutOff(): RefusedRequest {
  return new RefusedRequest(refused(status.UNIMPLEMENTED, "Received no whole request message"));
}
