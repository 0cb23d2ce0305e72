import { constants } from "node:http2";
import { EventLoopTurns, type TurnWorker } from "../../base/event-loop-turns.ts";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { SendReservation } from "../../server/limits/send-reservation.ts";
import type { Sender } from "../../server/limits/stall-detector.ts";
import { SendGate } from "../relay/send-gate.ts";
import { type PiecewiseResponse, pieceBytes } from "./range-response.ts";

interface SenderListener {
  /** Everything was sent, or nothing more can be. */
  readonly onEnd: () => void;
}

/**
 * Sends a large response: the next piece is encoded when the client has accepted the one before, in the time slices of the
 * event loop. So a slow client holds one piece, and many clients do not hold the event loop.
 */
export class RangeSender implements Sender, TurnWorker {
  readonly #call: RelayedCall;
  readonly #response: PiecewiseResponse;
  readonly #context: CallContext;
  readonly #listener: SenderListener;
  #reservation: SendReservation | undefined;
  readonly #gate: SendGate;
  #isOver = false;
  sent = 0;
  outstanding = false;

  constructor(
    call: RelayedCall,
    response: PiecewiseResponse,
    context: CallContext,
    listener: SenderListener,
  ) {
    this.#call = call;
    this.#response = response;
    this.#context = context;
    this.#listener = listener;
    this.#gate = new SendGate(call, context, () => this.#pump());
  }

  start(): void {
    this.#context.stallDetector.add(this);
    this.#pump();
  }

  stalled(): void {
    this.#context.defences?.count("slow_response", this.#call.connection);
    this.#cut();
  }

  /** Sends nothing more. Idempotent. */
  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.stallDetector.delete(this);
    this.#gate.stop();
    this.#reservation?.release();
    this.#listener.onEnd();
  }

  /** For `EventLoopTurns`: encodes a piece. */
  work(): boolean {
    const reservation = this.#reservation;
    if (this.#isOver || reservation === undefined) return false;
    const parts = this.#response.take();
    let bytes = 0;
    for (const part of parts) bytes += part.byteLength;
    this.#context.callerLimits.sendPacing.charge(this.#call.owner, bytes);
    this.sent++;
    this.outstanding = true;
    reservation.send(parts, () => this.#cut());
    if (!this.#isOver) this.#call.sendParts(parts, this.#onAccepted);
    return false;
  }

  #pump(): void {
    if (this.#isOver || this.#gate.mustWait()) return;
    if (this.#response.isDone) {
      this.#call.sendTrailers({ "grpc-status": "0" });
      this.stop();
      return;
    }
    const { sendBudget, clock } = this.#context;
    this.#reservation = sendBudget.force(this.#call.connection, pieceBytes);
    EventLoopTurns.of(clock).start(this);
  }

  readonly #onAccepted = (error?: Error | null): void => {
    this.outstanding = false;
    this.#reservation?.release();
    this.#reservation = undefined;
    if (error === undefined || error === null) this.#pump();
    else this.stop();
  };

  /** The client accepts too little. It sees UNAVAILABLE, after which clients of etcd read again. */
  #cut(): void {
    this.#call.resetWith(constants.NGHTTP2_REFUSED_STREAM);
    this.stop();
  }
}
