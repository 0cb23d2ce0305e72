import { WatchFanoutError } from "../../base/errors.ts";
import type { WatchStream } from "../../storage/storage.ts";
import { prefixSize, resumePointOf, withHistoryId } from "../../wire/encode.ts";
import { statusOf } from "../../wire/errors.ts";
import { framesOf } from "../../wire/frames.ts";
import { type CallContext, type ServedResource, toClientError } from "../calls/call-context.ts";
import type { ServerCall } from "../calls/server-call.ts";
import { freeRetainedBytes } from "../calls/unary-call.ts";
import type { Reservation } from "../limits/byte-pool.ts";
import type { OpenStream } from "../limits/open-streams.ts";
import type { SendReservation } from "../limits/send-budget.ts";
import type { Sender } from "../limits/stall-detector.ts";

/** What calls of Watch are called in logs and metrics. */
export const watchMethod = "watchfanout.v1.ListWatchService/Watch";

/** Frames that take less than this in all, in bytes, are not counted: a stream itself takes more. */
const leastCounted = 4 * 1024;

const noFrames: readonly Uint8Array[] = [];

/**
 * Sends what a watch delivers over one call, frame by frame: the next is taken when the client has
 * accepted the one before. So a slow client holds back nobody but itself, and no more than one batch is
 * kept for it here. While its connection as a whole has not accepted too much, none is read either. However the
 * call ends, the watch is closed.
 */
export class WatchSender implements Sender, OpenStream {
  readonly #call: ServerCall;
  readonly #watch: WatchStream;
  readonly #resource: Pick<ServedResource, "currentHistoryId">;
  readonly #context: CallContext;
  /** What is kept of the request, where that is more than every stream may have. */
  #retainedRequest: Reservation | undefined;
  /** The frames of the batch that was read last, and which of them comes next. */
  #frames = noFrames;
  #next = 0;
  #batchRevision: number | undefined;
  /** The last one that was written. */
  #resumePoint: number | undefined;
  /** What the batch takes of the connection's room. */
  #sendReservation: SendReservation | undefined;
  /** While it waits for room: gives up. */
  #stopWaiting: (() => void) | undefined;
  sent = 0;
  outstanding = false;
  #ended = false;

  constructor(
    call: ServerCall,
    watch: WatchStream,
    resource: Pick<ServedResource, "currentHistoryId">,
    context: CallContext,
  ) {
    this.#call = call;
    this.#watch = watch;
    this.#resource = resource;
    this.#context = context;
  }

  get connection(): object {
    return this.#call.connection;
  }

  /** Begins to send. To be called once. `retainedSnapshotBytes` is what is kept of the request, in bytes. */
  start(retainedSnapshotBytes: number): void {
    this.#call.onOver(() => this.#close());
    if (this.#call.isOver) {
      this.#close();
      return;
    }
    const { stallDetector, streams, retainedRequests, tooMuchRetained } = this.#context;
    streams.add(this);
    if (retainedSnapshotBytes > freeRetainedBytes) {
      this.#retainedRequest = retainedRequests.reserve(this.connection, retainedSnapshotBytes, () =>
        this.evict(tooMuchRetained()),
      );
      // There may be no room for it, even in an empty pool.
      if (this.#ended) return;
    }
    stallDetector.add(this);
    this.#watch.onReadable(() => {
      if (!this.outstanding && this.#stopWaiting === undefined) {
        this.#pump();
      } else if (this.#watch.ended instanceof Error) {
        // Given up for a client that does not accept what it was sent.
        this.#fail(this.#watch.ended);
      }
    });
    this.#pump();
  }

  evict(error: WatchFanoutError): void {
    this.#fail(error);
  }

  stalled(): void {
    const { ended } = this.#watch;
    this.#fail(ended instanceof Error ? ended : tookNothing(this.#context.responseFlushMs));
  }

  /** Sends the next frame if there is one. `hasRoom`: there is room for a batch, whoever else waits for some. */
  #pump(hasRoom = false): void {
    try {
      while (!this.#ended) {
        const frame = this.#frames[this.#next];
        if (frame !== undefined) {
          this.#send(frame);
          return;
        }
        if (!hasRoom && !this.#context.sendBudget.mayBuild(this.#call.connection)) {
          this.#waitForRoom();
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
        this.#count();
      }
    } catch (error) {
      this.#fail(error);
    }
  }

  #waitForRoom(): void {
    const { sendBudget } = this.#context;
    this.#stopWaiting = sendBudget.whenMayBuild(this.#call.connection, () => {
      this.#stopWaiting = undefined;
      this.#pump(true);
    });
  }

  /** Counts the frames that were just taken, until the last of them is accepted. */
  #count(): void {
    let bytes = 0;
    for (const frame of this.#frames) bytes += frame.byteLength;
    if (bytes < leastCounted) return;
    this.#sendReservation = this.#context.sendBudget.force(this.#call.connection);
    this.#sendReservation.send(this.#frames, this.#drop);
  }

  /** Room has to be made, and of all connections this one holds most. */
  readonly #drop = (): void => {
    this.#close();
    this.#call.reset();
  };

  #send(frame: Uint8Array): void {
    if (this.#call.isOver) {
      this.#close();
      return;
    }
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
    this.#call.send(bytes, this.#onAccepted);
    this.#context.observer?.sent(watchMethod, 1, bytes.byteLength - prefixSize);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    if (error !== undefined && error !== null) {
      this.#close();
      return;
    }
    this.#watch.accepted?.();
    if (this.#frames.length === 0) this.#release();
    this.#pump();
  };

  /** Ends the call with what `error` says, behind what is on its way. */
  #fail(error: unknown): void {
    if (this.#ended) return;
    this.#close();
    let told = toClientError(error, watchMethod, this.#context.logger);
    if (told.reason === "SLOW_CONSUMER" || told.reason === "DRAINING") {
      if (this.#resumePoint !== undefined) {
        told = told.with({ resume_revision: String(this.#resumePoint) });
      }
    }
    this.#call.end(statusOf(told));
  }

  #close(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#frames = noFrames;
    this.#stopWaiting?.();
    this.#context.stallDetector.delete(this);
    this.#context.streams.delete(this);
    this.#retainedRequest?.release();
    this.#watch.close();
    if (this.outstanding) this.#call.onClosed(() => this.#release());
    else this.#release();
  }

  #release(): void {
    this.#sendReservation?.release();
    this.#sendReservation = undefined;
  }
}

function tookNothing(ms: number): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `Nothing was taken from the stream for ${ms / 1_000} s. Resume from the last resume point, and ` +
      "read faster, or watch less.",
  );
}
