import type { Notifiable, TimeSliceQueue } from "../../base/time-slice-queue.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { SendReservation } from "../../server/limits/send-budget.ts";
import type { Sender } from "../../server/limits/stall-detector.ts";
import { sizeOf } from "../../wire/frame-parts.ts";
import { SendGate } from "../relay/send-gate.ts";
import type { PiecewiseResponse } from "./range-response.ts";

interface SenderDeps {
  /** The turns in which the pieces of all responses are encoded. */
  readonly turns: TimeSliceQueue;
  /** Everything was sent, or nothing more can be. */
  readonly onEnd: () => void;
}

/**
 * Sends a large response: the next piece is encoded when the client has accepted the one before, in the time slices of the
 * event loop. So a slow client holds one piece. The responses of all connections share one queue of these slices, in which
 * callers and their connections take turns, so many of them delay neither each other nor other work.
 */
export class RangeSender implements Sender, Notifiable {
  readonly #call: RelayedCall;
  readonly #response: PiecewiseResponse;
  readonly #context: CallContext;
  readonly #deps: SenderDeps;
  #reservation: SendReservation | undefined;
  readonly #gate: SendGate;
  #isOver = false;
  sent = 0;
  outstanding = false;

  constructor(
    call: RelayedCall,
    response: PiecewiseResponse,
    context: CallContext,
    deps: SenderDeps,
  ) {
    this.#call = call;
    this.#response = response;
    this.#context = context;
    this.#deps = deps;
    this.#gate = new SendGate(call, context, () => this.#pump());
  }

  start(): void {
    this.#context.stallDetector.add(this);
    this.#pump();
  }

  stalled(): void {
    this.#cut(this.#context.stallDetector.outstandingMs(this));
  }

  /** Sends nothing more. Idempotent. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.stallDetector.delete(this);
    this.#gate.stop();
    this.#reservation?.release();
    this.#deps.onEnd();
  }

  /** For `TimeSliceQueue`: encodes a piece. */
  notify(): void {
    const reservation = this.#reservation;
    if (this.#isOver || reservation === undefined) return;
    const parts = this.#response.take();
    this.#context.callerLimits.sendPacing.charge(this.#call.owner, sizeOf(parts));
    this.sent++;
    this.outstanding = true;
    reservation.send(parts, () => this.#cut());
    if (this.#isOver) return;
    this.#call.isMidMessage = this.#response.isMidMessage;
    this.#call.sendParts(parts, this.#onAccepted);
  }

  #pump(): void {
    if (this.#isOver) return;
    if (this.#response.isDone) {
      this.#call.sendTrailers({ "grpc-status": "0" });
      this.stop();
      return;
    }
    if (this.#gate.mustWait()) return;
    const { connection, owner } = this.#call;
    this.#reservation = this.#context.sendBudget.force(connection, this.#response.maxPieceBytes);
    // The piece is encoded in a later step.
    this.#reservation.claim();
    this.#deps.turns.enqueue(this, owner);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    this.#reservation?.release();
    this.#reservation = undefined;
    if (error === undefined || error === null) this.#pump();
    else this.stop();
  };

  /** The client accepts too little. It sees UNAVAILABLE, after which clients of etcd read again. */
  #cut(acceptedNothingMs?: number): void {
    if (!this.#isOver) this.#context.slowClients?.ended(this.#call, { acceptedNothingMs });
    this.#call.reset();
    this.stop();
  }
}
