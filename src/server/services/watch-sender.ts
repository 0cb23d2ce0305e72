import { type Reason, WatchFanoutError } from "../../base/errors.ts";
import type { Identity } from "../../identity/identity.ts";
import type { Access } from "../../policy/access.ts";
import type { WatchStatus, WatchStream } from "../../storage/storage.ts";
import { prefixSize, resumePointOf, withHistoryId } from "../../wire/encode.ts";
import { statusOf } from "../../wire/errors.ts";
import { framesOf } from "../../wire/frames.ts";
import { type CallContext, type ServedResource, toClientError } from "../calls/call-context.ts";
import type { ServerCall } from "../calls/server-call.ts";
import { freeRetainedBytes } from "../calls/unary-call.ts";
import type { Reservation } from "../kernel/ledger.ts";
import { nextStreamId, type OpenStream } from "../kernel/open-streams.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { SendReservation } from "../limits/send-budget.ts";
import type { Sender } from "../limits/stall-detector.ts";

/** The name of Watch in logs and metrics. */
export const watchMethod = "watchfanout.v1.ListWatchService/Watch";

/** Batches whose frames are smaller than this, in bytes, are not counted: the stream itself takes more memory. */
const leastCounted = 4 * 1024;

/** The reasons whose errors have the resume point: a client may continue from it, with this replica or another. */
const resumable: ReadonlySet<Reason> = new Set([
  ...(["SLOW_CONSUMER", "DRAINING", "OVERLOADED"] as const),
  // With another credential, or once the right is granted again.
  ...(["UNAUTHENTICATED", "PERMISSION_DENIED"] as const),
]);

/** What a sender needs of the resource that is watched. */
type SentResource = Pick<ServedResource, "currentHistoryId" | "name" | "revision">;

const noFrames: readonly Uint8Array[] = [];

/**
 * Sends the batches of a watch over one call, frame by frame: the next frame is sent when the client has accepted the one
 * before. So a slow client delays only itself, and at most one batch is held for it here. While its connection is at its
 * send budget, no batch is read. The watch is closed at every end of the call.
 */
export class WatchSender implements Sender, OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "watch";
  readonly openedAt: number;
  readonly #call: ServerCall;
  readonly #watch: WatchStream;
  readonly #resource: SentResource;
  readonly #context: CallContext;
  access: Access | undefined;
  /** The charge for the request, if it exceeds the free allowance of each stream. */
  #retainedRequest: Reservation | undefined;
  /** The frames of the last batch that was read, and the index of the next one to send. */
  #frames = noFrames;
  #next = 0;
  #batchRevision: number | undefined;
  /** The last resume point that was sent. */
  #resumePoint: number | undefined;
  /** The last one that the client has accepted. */
  #acceptedPoint: number | undefined;
  /** The batch's part of the connection's send budget. */
  #sendReservation: SendReservation | undefined;
  /** Stops waiting for room in the send budget; undefined while it does not wait. */
  #stopWaiting: (() => void) | undefined;
  sent = 0;
  outstanding = false;
  #ended = false;

  constructor(call: ServerCall, watch: WatchStream, resource: SentResource, context: CallContext) {
    this.openedAt = context.clock.now();
    this.#call = call;
    this.#watch = watch;
    this.#resource = resource;
    this.#context = context;
  }

  get connection(): object {
    return this.#call.connection;
  }

  get owner(): CallOwner {
    return this.#call.owner;
  }

  get resource(): string | undefined {
    return this.#resource.name;
  }

  get watchStatus(): WatchStatus | undefined {
    return this.#watch.status;
  }

  get outstandingMs(): number {
    return this.#context.stallDetector.outstandingMs(this);
  }

  get heldBytes(): number {
    if (!this.outstanding) return 0;
    return (this.#sendReservation?.bytes ?? 0) + (this.#watch.heldBytes ?? 0);
  }

  get identity(): Identity {
    return this.#call.identity;
  }

  /** Begins to send. Call it once. `retainedBytes` is the memory that the request takes, in bytes. */
  start(retainedBytes: number): void {
    this.#call.onOver(() => this.#close());
    if (this.#call.isOver) {
      this.#close();
      return;
    }
    const { stallDetector, streams, retainedRequests, tooMuchRetained } = this.#context;
    streams.add(this);
    if (retainedBytes > freeRetainedBytes) {
      this.#retainedRequest = retainedRequests.reserve(this.connection, retainedBytes, () =>
        this.evict(tooMuchRetained()),
      );
      // The charge may exceed the bound even of an empty pool.
      if (this.#ended) return;
    }
    stallDetector.add(this);
    this.#watch.onReadable(() => {
      if (!this.outstanding && this.#stopWaiting === undefined) {
        this.#pump();
      } else if (this.#watch.ended instanceof Error) {
        // The watch ended because the client does not accept the outstanding frame.
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

  /** Sends the next frame if there is one. `hasRoom`: the send budget has granted room for a batch. */
  #pump(hasRoom = false): void {
    let isGranted = hasRoom;
    try {
      while (!this.#ended) {
        const frame = this.#frames[this.#next];
        if (frame !== undefined) {
          if (!this.#send(frame)) return;
          continue;
        }
        if (this.#isPaced()) return;
        if (!isGranted && !this.#context.sendBudget.mayBuild(this.#call.connection)) {
          this.#waitForRoom();
          return;
        }
        isGranted = false;
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

  /** Whether the stream waits because more was sent to its caller than it may get per second. */
  #isPaced(): boolean {
    const { sendPacing } = this.#context.callerLimits;
    const { owner } = this.#call;
    if (sendPacing.exceededBy(owner.caller) === undefined) return false;
    this.#stopWaiting = sendPacing.wait(owner, () => {
      this.#stopWaiting = undefined;
      this.#pump();
    });
    return true;
  }

  /** Counts the frames of the batch that was just read, until the last of them is accepted. */
  #count(): void {
    let bytes = 0;
    for (const frame of this.#frames) bytes += frame.byteLength;
    this.#context.callerLimits.sendPacing.charge(this.#call.owner, bytes);
    if (bytes < leastCounted) return;
    this.#sendReservation = this.#context.sendBudget.force(this.#call.connection);
    this.#sendReservation.send(this.#frames, this.#drop);
  }

  /** Evicted from the send budget: this connection holds most. */
  readonly #drop = (): void => {
    if (!this.#ended) {
      this.#reportSlow();
      this.#context.observer?.watchEnded?.("RESET");
    }
    this.#close();
    this.#call.reset();
  };

  /** Returns whether the frame was accepted, so that the next one may follow. */
  #send(frame: Uint8Array): boolean {
    const isFirst = this.sent === 0;
    this.#next++;
    const isLast = this.#next === this.#frames.length;
    const revision = isLast ? this.#batchRevision : resumePointOf(frame);
    if (revision !== undefined) this.#resumePoint = revision;
    const bytes = isFirst ? withHistoryId(frame, this.#resource.currentHistoryId) : frame;
    if (isLast) {
      this.#frames = noFrames;
      this.#next = 0;
    }
    const isAccepted = this.#call.sendAtOnce(bytes);
    if (!isAccepted && this.#call.isOver) {
      this.#close();
      return false;
    }
    this.sent++;
    this.#context.observer?.sent(watchMethod, 1, bytes.byteLength - prefixSize);
    if (isAccepted) {
      this.#accepted();
      return true;
    }
    this.outstanding = true;
    this.#call.send(bytes, this.#onAccepted);
    return false;
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    if (error !== undefined && error !== null) {
      this.#close();
      return;
    }
    this.#accepted();
    this.#pump();
  };

  #accepted(): void {
    this.#acceptedPoint = this.#resumePoint;
    this.#watch.accepted?.();
    if (this.#frames.length === 0) this.#release();
  }

  /** Ends the call with the error, behind the frames that were sent. */
  #fail(error: unknown): void {
    if (this.#ended) return;
    let reported = toClientError(error, watchMethod, this.#context.logger, this.#call);
    if (reported.reason === "SLOW_CONSUMER") {
      this.#reportSlow();
      this.#withdraw();
    }
    this.#close();
    if (resumable.has(reported.reason) && this.#resumePoint !== undefined) {
      reported = reported.with({ resume_revision: String(this.#resumePoint) });
    }
    this.#context.observer?.watchEnded?.(reported.reason);
    this.#call.end(statusOf(reported));
  }

  /** Takes back the outstanding frame if none of it is sent, so that the client gets the status instead of a reset. */
  #withdraw(): void {
    if (!this.outstanding || !this.#call.withdraw()) return;
    this.outstanding = false;
    this.#resumePoint = this.#acceptedPoint;
  }

  /** Before `#close`, from which on its status and that of the outstanding message are unknown. */
  #reportSlow(): void {
    const { slowClients, stallDetector } = this.#context;
    const { name: resource, revision } = this.#resource;
    const accepted = this.#acceptedPoint;
    slowClients?.ended(this.#call, {
      ...{ resource, scope: this.watchStatus?.scope },
      lagRevisions: revision && accepted && revision - accepted,
      acceptedNothingMs: stallDetector.outstandingMs(this),
    });
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
    `The client accepted nothing from the stream for ${ms / 1_000} s. Resume from the last resume point, and ` +
      "read faster, or watch less.",
  );
}
