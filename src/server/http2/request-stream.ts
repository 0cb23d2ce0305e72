import type { Readable } from "node:stream";
import type { status } from "@grpc/grpc-js";
import { waitFor } from "../../base/wait.ts";
import { prefixSize } from "../../wire/encode.ts";
import type { WireStatus } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";

import { incomplete, outOfRequestRoom, tookTooLong, tooLarge } from "../calls/refusals.ts";
import { RefusedRequest, type ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { Reservation } from "../kernel/ledger.ts";
import type { Inflater } from "./inflater.ts";

/** HTTP/2 flow control window: what a client may send on a stream that is not read from, in bytes. */
const windowBytes = 64 * 1024;

export interface RequestStreamOptions {
  readonly encoding: string;
  readonly inflater: Inflater;
  /** The largest request, in bytes. */
  readonly maxBytes: number;
  /** See `RequestBody`. */
  readonly corruptCode: status | undefined;
  /** See `BidiMethod`. */
  readonly mayIdle: boolean;
}

/**
 * Reads the requests of a stream one at a time, on demand. What arrives meanwhile waits in the stream, up to its flow
 * control window. The connection is charged with the window and the largest request for as long as the stream is open; if
 * its client may idle, only for what has arrived, and with the window while it may fill.
 */
export class RequestStream {
  readonly #stream: Readable;
  readonly #call: ServerCall;
  readonly #context: ServiceContext;
  readonly #options: RequestStreamOptions;
  readonly #messages = new MessageReader();
  readonly #charge: Reservation;
  /** Continues a `next` that waits for its request. */
  #wake: (() => void) | undefined;
  /** Whether `next` waits for the first byte of a request. */
  #isIdle = false;

  constructor(
    stream: Readable,
    call: ServerCall,
    context: ServiceContext,
    options: RequestStreamOptions,
  ) {
    this.#stream = stream;
    this.#call = call;
    this.#context = context;
    this.#options = options;
    const { requestPool } = context;
    this.#charge = requestPool.reserve(
      call.connection,
      windowBytes + options.maxBytes,
      // Deferred, since the handler does not have the call yet.
      () => queueMicrotask(() => call.end(outOfRequestRoom(requestPool))),
    );
    stream.pause();
    stream.on("data", (chunk: Buffer) => {
      this.#messages.add(chunk);
      this.#chargeReceived(windowBytes);
      // Most requests are handled at once: pausing costs more than that. What comes before the next one is wanted pauses it.
      if (this.#isIdle) this.#isIdle = false;
      else if (this.#isReady) stream.pause();
      else return;
      this.#wake?.();
    });
    stream.on("end", () => this.#wake?.());
    stream.on("close", () => {
      this.#charge.release();
      this.#wake?.();
    });
  }

  /**
   * Reads the next request; undefined: there are no more. Rejects with a `RefusedRequest` if it is invalid or does not
   * arrive within `requestMs`.
   */
  async next(): Promise<Buffer | undefined> {
    const messages = this.#messages;
    const { maxBytes, mayIdle } = this.#options;
    if (mayIdle && messages.bytes.length === 0 && !this.#isReady) await this.#firstByte();
    if (!this.#isReady) await this.#arrival();
    const { size, isCompressed } = messages;
    if (size > maxBytes) throw new RefusedRequest(tooLarge(size, maxBytes));
    const message = messages.next();
    if (message !== undefined) return isCompressed ? this.#inflate(message) : message;
    const { length } = messages.bytes;
    if (length === 0) return undefined;
    throw new RefusedRequest(incomplete(length, prefixSize + size));
  }

  /** Whether `next` need not wait. */
  get #isReady(): boolean {
    const { isWhole, size } = this.#messages;
    const { readableEnded, destroyed } = this.#stream;
    return isWhole || size > this.#options.maxBytes || readableEnded || destroyed;
  }

  /** The charge of a client that may idle; `besideBytes` may arrive unread. */
  #chargeReceived(besideBytes: number): void {
    if (this.#options.mayIdle) this.#charge.resize(this.#messages.heldBytes + besideBytes);
  }

  /** Waits for as long as the stream is open: its end wakes it as well. */
  #firstByte(): Promise<void> {
    this.#messages.own();
    this.#chargeReceived(0);
    this.#isIdle = true;
    if (this.#stream.isPaused()) this.#stream.resume();
    return new Promise(this.#onWake);
  }

  readonly #onWake = (resolve: () => void): void => {
    this.#wake = resolve;
  };

  #arrival(): Promise<void> {
    const { clock, defences, limits } = this.#context;
    const { requestMs: ms } = limits;
    const expire = (): never => {
      defences?.count("slow_request", this.#call.connection);
      throw new RefusedRequest(tookTooLong(ms));
    };
    this.#stream.resume();
    return waitFor<void>(
      (resolve) => {
        this.#wake = resolve;
        return undefined;
      },
      { deadline: { clock, ms, expire } },
    );
  }

  #inflate(message: Buffer): Promise<Buffer> {
    const { encoding, inflater, maxBytes, corruptCode } = this.#options;
    this.#chargeReceived(message.length + maxBytes + windowBytes);
    return new Promise((resolve, reject) => {
      const onRefused = (why: WireStatus): void => reject(new RefusedRequest(why));
      inflater.add({
        owner: this.#call.connection,
        encoding,
        message,
        maxBytes,
        corruptCode,
        onTurn: () => true,
        onInflated: resolve,
        onRefused,
      });
    });
  }
}
