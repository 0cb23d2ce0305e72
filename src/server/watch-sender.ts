import type { ServerHttp2Stream } from "node:http2";
import type { ServerWritableStream } from "@grpc/grpc-js";
import type { Timer } from "../clock.ts";
import { WatchFanoutError } from "../errors.ts";
import type { WatchStream } from "../storage/storage.ts";
import { resumePointOf, withHistoryId } from "../wire/encode.ts";
import { statusOf } from "../wire/errors.ts";
import { framesOf } from "../wire/frames.ts";
import {
  type CallContext,
  methodOf,
  presentError,
  resetUnlessClosed,
  type ServedResource,
} from "./calls.ts";
import { http2StreamOf } from "./http2-stream.ts";
import type { Sender } from "./send-patrol.ts";

export type WatchCall = ServerWritableStream<unknown, Uint8Array>;

const noFrames: readonly Uint8Array[] = [];

/**
 * Sends what a watch delivers over one call, frame by frame: the next is taken when the client has
 * accepted the one before. So a slow client holds back nobody but itself, and no more than one frame is
 * kept for it here. However the call ends, the watch is closed.
 */
export class WatchSender implements Sender {
  readonly #call: WatchCall;
  readonly #watch: WatchStream;
  readonly #resource: Pick<ServedResource, "currentHistoryId">;
  readonly #context: CallContext;
  readonly #method: string;
  readonly #http2Stream: ServerHttp2Stream | undefined;
  readonly #deadline: Timer | undefined;
  /** The frames of the batch that was read last, and which of them comes next. */
  #frames = noFrames;
  #next = 0;
  #batchRevision: number | undefined;
  /** The last one that was written. */
  #resumePoint: number | undefined;
  sent = 0;
  outstanding = false;
  #ended = false;

  /** `deadline` is the call's, by the clock; undefined: none. */
  constructor(
    call: WatchCall,
    watch: WatchStream,
    deadline: number | undefined,
    resource: Pick<ServedResource, "currentHistoryId">,
    context: CallContext,
  ) {
    this.#call = call;
    this.#watch = watch;
    this.#resource = resource;
    this.#context = context;
    this.#method = methodOf(call.getPath());
    this.#http2Stream = http2StreamOf(call);
    if (deadline !== undefined) {
      const { clock } = context;
      const delay = Math.max(0, deadline - clock.now());
      this.#deadline = clock.setTimeout(() => this.#deadlinePassed(), delay);
    }
  }

  /** Begins to send. To be called once. */
  start(): void {
    const onClose = (): void => this.#close();
    this.#call.once("cancelled", onClose);
    this.#http2Stream?.once("close", onClose);
    if (this.#call.cancelled || this.#http2Stream?.destroyed === true) {
      this.#close();
      return;
    }
    this.#context.patrol.add(this);
    this.#watch.onReadable(() => {
      if (!this.outstanding) {
        this.#pump();
      } else if (this.#watch.ended instanceof Error) {
        // Given up for a client that does not accept what it was sent.
        this.#fail(this.#watch.ended);
      }
    });
    this.#pump();
  }

  stalled(): void {
    const { ended } = this.#watch;
    this.#fail(ended instanceof Error ? ended : tookNothing(this.#context.responseFlushMs));
  }

  /** Sends the next frame if there is one. */
  #pump(): void {
    try {
      while (!this.#ended) {
        const frame = this.#frames[this.#next];
        if (frame !== undefined) {
          this.#send(frame);
          return;
        }
        const batch = this.#watch.read();
        if (batch === undefined) {
          if (this.#watch.ended instanceof Error) this.#fail(this.#watch.ended);
          return;
        }
        this.#frames = framesOf(batch);
        this.#next = 0;
        this.#batchRevision = batch.revision;
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #send(frame: Uint8Array): void {
    const isFirst = this.sent === 0;
    this.sent++;
    this.#next++;
    const isLast = this.#next === this.#frames.length;
    const revision = isLast ? this.#batchRevision : resumePointOf(frame);
    if (revision !== undefined) this.#resumePoint = revision;
    const bytes = isFirst ? withHistoryId(frame, this.#resource.currentHistoryId) : frame;
    if (isLast) {
      this.#frames = noFrames;
      this.#next = 0;
    }
    this.outstanding = true;
    this.#call.write(bytes, this.#onAccepted);
    this.#context.observer?.sent(this.#method, 1, bytes.byteLength);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    if (error === undefined || error === null) this.#pump();
    else this.#close();
  };

  /** Ends the call with what `error` says, behind what is on its way. */
  #fail(error: unknown): void {
    if (this.#ended) return;
    this.#close();
    let told = presentError(error, this.#method, this.#context.logger);
    if (told.reason === "SLOW_CONSUMER" || told.reason === "DRAINING") {
      if (this.#resumePoint !== undefined) {
        told = told.with({ resume_revision: String(this.#resumePoint) });
      }
    }
    this.#call.emit("error", statusOf(told));
    this.#resetUnlessClosed();
  }

  /** grpc-js ends the call, unless its client accepts nothing. */
  #deadlinePassed(): void {
    this.#close();
    this.#resetUnlessClosed();
  }

  #resetUnlessClosed(): void {
    resetUnlessClosed(this.#http2Stream, this.#context.endFlushMs, this.#context.clock);
  }

  #close(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#frames = noFrames;
    this.#deadline?.cancel();
    this.#context.patrol.delete(this);
    this.#watch.close();
  }
}

function tookNothing(ms: number): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `Nothing was taken from the stream for ${ms / 1_000} s. Resume from the last resume point, and ` +
      "read faster, or watch less.",
  );
}

/** Ends a call that never got as far as a watch. */
export function refuseWatch(call: WatchCall, error: unknown, context: CallContext): void {
  const told = presentError(error, methodOf(call.getPath()), context.logger);
  call.emit("error", statusOf(told));
}
