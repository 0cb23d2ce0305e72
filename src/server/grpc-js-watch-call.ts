import type { ServerHttp2Stream } from "node:http2";
import type { ServerWritableStream } from "@grpc/grpc-js";
import type { Timer } from "../clock.ts";
import { prefixSize } from "../wire/encode.ts";
import type { WireStatus } from "../wire/errors.ts";
import { type CallContext, resetUnlessClosed } from "./calls.ts";
import { http2StreamOf } from "./http2-stream.ts";
import type { WatchCall } from "./watch-call.ts";

/**
 * A call of Watch as grpc-js hands it to its handler: of a client that compresses its request, or where
 * this version of grpc-js does not let its streams be taken over.
 */
export class GrpcJsWatchCall implements WatchCall {
  readonly deadline: number | undefined;
  readonly #call: ServerWritableStream<unknown, Uint8Array>;
  readonly #context: CallContext;
  readonly #stream: ServerHttp2Stream | undefined;
  readonly #timer: Timer | undefined;
  #onOver: () => void = () => {};

  constructor(call: ServerWritableStream<unknown, Uint8Array>, context: CallContext) {
    this.#call = call;
    this.#context = context;
    this.#stream = http2StreamOf(call);
    const { clock } = context;
    const deadline = Number(call.getDeadline());
    if (deadline !== Infinity) {
      const delay = Math.max(0, deadline - Date.now());
      this.deadline = clock.now() + delay;
      this.#timer = clock.setTimeout(() => this.#deadlinePassed(), delay);
    }
    const over = (): void => this.#over();
    call.once("cancelled", over);
    // Of a call that is cancelled just before its handler runs grpc-js says nothing.
    this.#stream?.once("close", over);
  }

  get isOver(): boolean {
    return this.#call.cancelled || this.#stream?.destroyed === true;
  }

  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  send(frame: Uint8Array, onAccepted: (error?: Error | null) => void): void {
    this.#call.write(frame.subarray(prefixSize), onAccepted);
  }

  end(status: WireStatus): void {
    this.#timer?.cancel();
    this.#call.emit("error", status);
    resetUnlessClosed(this.#stream, this.#context.endFlushMs, this.#context.clock);
  }

  /** grpc-js ends the call, unless its client accepts nothing. */
  #deadlinePassed(): void {
    this.#over();
    resetUnlessClosed(this.#stream, this.#context.endFlushMs, this.#context.clock);
  }

  #over(): void {
    this.#timer?.cancel();
    this.#onOver();
  }
}
