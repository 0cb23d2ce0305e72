import { hasReason, type Reason, WatchFanoutError } from "../../base/errors.ts";
import type { Access } from "../../policy/access.ts";
import type { WatchStatus, WatchStream } from "../../storage/storage.ts";
import { prefixSize, resumePointOf, sizeOf, withHistoryId } from "../../wire/encode.ts";
import { statusOf, type WireStatus } from "../../wire/errors.ts";
import { framesOf } from "../../wire/frames.ts";
import { MessageSender, type SlowEnd } from "../calls/message-sender.ts";
import { toClientError, tooMuchRetained } from "../calls/refusals.ts";
import type { ServerCall } from "../calls/server-call.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { ServedResource } from "../calls/service-options.ts";
import type { SlowStream } from "../calls/slow-clients.ts";
import { freeRetainedBytes } from "../calls/unary-call.ts";
import type { Reservation } from "../kernel/ledger.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";
import { CompressedFrames } from "./compressed-frames.ts";

/** The name of Watch in logs and metrics. */
export const watchMethod = "watchfanout.v1.ListWatchService/Watch";

/** The reasons whose errors have the resume point: a client may continue from it, with this replica or another. */
const resumable: ReadonlySet<Reason> = new Set([
  ...(["SLOW_CONSUMER", "RESUME_LIMITED", "DRAINING", "OVERLOADED"] as const),
  // With another credential, or once the right is granted again.
  ...(["UNAUTHENTICATED", "PERMISSION_DENIED"] as const),
]);

/** The error that ends a watch, with its last resume point if a client may continue from it. `point` undefined: nothing was sent yet. */
export function withResumePoint(
  error: WatchFanoutError,
  point: number | undefined,
): WatchFanoutError {
  const isResumable = resumable.has(error.reason) && point !== undefined;
  return isResumable ? error.with({ resume_revision: String(point) }) : error;
}

/** What a sender needs of the resource that is watched. */
type SentResource = Pick<ServedResource, "currentHistoryId" | "name" | "revision">;

/**
 * Sends the batches of a watch over one call, frame by frame. No batch is read before all frames of the one before are
 * accepted, so at most one batch is held for a slow client here. The watch is closed at every end of the call.
 */
export class WatchSender extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "watch";
  /** By a Cacher, which ends its watches that are behind, and knows what they lack. */
  override readonly isEndedElsewhere = true;
  readonly openedAt: number;
  readonly #watch: WatchStream;
  readonly #resource: SentResource;
  /** Undefined: nothing is compressed. */
  readonly #compressed: CompressedFrames | undefined;
  access: Access | undefined;
  /** The charge for the request, if it exceeds the free allowance of each stream. */
  #retainedRequest: Reservation | undefined;
  #batchRevision: number | undefined;
  /** The last resume point that was sent. */
  #sentPoint: number | undefined;
  /** The last one that the client has accepted. */
  #acceptedPoint: number | undefined;

  constructor(
    call: ServerCall,
    watch: WatchStream,
    resource: SentResource,
    context: ServiceContext,
  ) {
    super(call, context);
    this.openedAt = context.clock.now();
    this.#watch = watch;
    this.#resource = resource;
    this.#compressed = CompressedFrames.of(call, context.compressor);
  }

  get resource(): string | undefined {
    return this.#resource.name;
  }

  get watchStatus(): WatchStatus | undefined {
    return this.#watch.status;
  }

  override get heldBytes(): number {
    return this.outstanding ? super.heldBytes + (this.#watch.heldBytes ?? 0) : 0;
  }

  /** Begins to send. Call it once. `retainedBytes` is the memory that the request takes, in bytes. */
  start(retainedBytes: number): void {
    this.call.onOver(() => this.close());
    if (this.call.isOver) {
      this.close();
      return;
    }
    const { streams, retainedRequests } = this.context;
    streams.add(this);
    if (retainedBytes > freeRetainedBytes) {
      this.#retainedRequest = retainedRequests.reserve(this.connection, retainedBytes, () =>
        this.evict(tooMuchRetained(retainedRequests)),
      );
      // The charge may exceed the bound even of an empty pool.
      if (this.isOver) return;
    }
    this.#watch.onReadable(() => {
      const { ended } = this.#watch;
      // It may have ended because the client does not accept the outstanding frame.
      if (ended instanceof Error && this.isBlocked) this.onFailed(ended);
      else this.pump();
    });
    this.pump();
  }

  evict(error: WatchFanoutError): void {
    this.onFailed(error);
  }

  /** An idle watch waits for nothing: the next read has the watch notify of events. What is being compressed has its room. */
  protected override get waitsFor(): "nothing" | "room" {
    const isBegun = this.#compressed?.isBegun === true;
    return isBegun || this.#watch.hasPending === false ? "nothing" : "room";
  }

  protected override next(): readonly Uint8Array[] | undefined {
    const compressed = this.#compressed;
    if (compressed?.isBegun === true) return this.#compressedRest(compressed);
    const batch = this.#watch.read();
    if (batch === undefined) {
      if (this.#watch.ended instanceof Error) this.onFailed(this.#watch.ended);
      return undefined;
    }
    this.#batchRevision = batch.revision;
    const frames = framesOf(batch);
    if (compressed?.concerns(frames) === true) {
      compressed.begin(frames, () => this.pump());
      if (compressed.isBusy) this.claim(sizeOf(frames));
      return this.#compressedRest(compressed);
    }
    return this.sent === 0 ? this.#withHistoryId(frames) : frames;
  }

  /** Undefined: they are being compressed. */
  #compressedRest(compressed: CompressedFrames): readonly Uint8Array[] | undefined {
    if (compressed.isBusy) return undefined;
    const frames = this.sent === 0 ? this.#withHistoryId(compressed.rest) : compressed.rest;
    return frames.map((frame, i) => {
      // The first response has a field of its own. It is small: only a position, or nothing.
      const isFirst = i === 0 && this.sent === 0;
      return isFirst ? frame : (compressed.part(i)?.frame ?? frame);
    });
  }

  /** The first response names the history. */
  #withHistoryId([first, ...rest]: readonly Uint8Array[]): readonly Uint8Array[] {
    return first === undefined
      ? rest
      : [withHistoryId(first, this.#resource.currentHistoryId), ...rest];
  }

  protected override onSent(frame: Uint8Array, isLast: boolean): void {
    const plain = this.#compressed?.take() ?? frame;
    const revision = isLast ? this.#batchRevision : resumePointOf(plain);
    if (revision !== undefined) this.#sentPoint = revision;
    this.context.observer?.sent(watchMethod, 1, frame.byteLength - prefixSize);
  }

  protected override onAccepted(): void {
    this.#acceptedPoint = this.#sentPoint;
    this.#watch.accepted?.();
  }

  protected override get slowStream(): SlowStream {
    const { name: resource, revision } = this.#resource;
    const accepted = this.#acceptedPoint;
    const lagRevisions = revision && accepted && revision - accepted;
    return { resource, scope: this.watchStatus?.scope, lagRevisions };
  }

  protected override slowStatus(end: SlowEnd): WireStatus | undefined {
    if (end === "unreachable") {
      this.context.observer?.watchEnded?.("RESET");
      return undefined;
    }
    const { ended } = this.#watch;
    if (ended instanceof Error) return this.#statusOf(ended);
    const seconds = this.context.limits.responseFlushMs / 1_000;
    const accepted = end === "stalled" ? `nothing from the stream for ${seconds} s` : "too little";
    return this.#statusOf(slowConsumer(accepted));
  }

  /** Ends the call with the error, behind the frames that were sent. */
  protected override onFailed(error: unknown): void {
    if (this.isOver) return;
    if (hasReason(error, "SLOW_CONSUMER")) this.stalled();
    else this.end(this.#statusOf(error));
  }

  /** The status of an error, with the resume point behind all that is sent if a client may continue from it. */
  #statusOf(error: unknown): WireStatus {
    const reported = toClientError(error, watchMethod, this.context.logger, this.call);
    this.context.observer?.watchEnded?.(reported.reason);
    const point = this.outstanding ? this.#sentPoint : this.#acceptedPoint;
    return statusOf(withResumePoint(reported, point));
  }

  protected override onClosed(): void {
    this.context.streams.delete(this);
    this.#retainedRequest?.release();
    this.#watch.close();
  }
}

/** `accepted` says what the client has accepted. */
export function slowConsumer(accepted: string): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    `The client accepted ${accepted}. Resume from the last resume point, and read faster, or watch less.`,
  );
}
