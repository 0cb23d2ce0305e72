import { constants } from "node:http2";
import type { CallContext } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import type { SendReservation } from "../../server/limits/send-reservation.ts";
import type { Sender } from "../../server/limits/stall-detector.ts";
import { SendGate } from "../relay/send-gate.ts";
import type { PiecewiseResponse } from "./range-response.ts";

/** Maximum size of a response that is encoded at once, in bytes. */
export const wholeBytes = 1024 ** 2;

/** Size of a piece of a larger one, in bytes. */
const pieceBytes = 256 * 1024;

/** Memory of an object that is still to be sent, in bytes: its place in the list. */
const bytesPerObject = 8;

interface SenderListener {
  /** Everything was sent, or nothing more can be. */
  readonly onEnd: () => void;
}

/**
 * Sends a large response: the next piece is encoded when the client has accepted the one before. So a
 * slow client holds one piece, and the objects that are still to be sent.
 */
export class RangeSender implements Sender {
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

  #pump(): void {
    if (this.#isOver || this.#gate.mustWait()) return;
    if (this.#response.isDone) {
      this.#call.sendTrailers({ "grpc-status": "0" });
      this.stop();
      return;
    }
    const { sendBudget, callerLimits } = this.#context;
    const { owner, connection } = this.#call;
    const parts = this.#response.take(pieceBytes);
    let bytes = 0;
    for (const part of parts) bytes += part.byteLength;
    callerLimits.sendPacing.charge(owner, bytes);
    this.sent++;
    this.outstanding = true;
    this.#reservation = sendBudget.force(connection);
    this.#reservation.send(parts, () => this.#cut(), this.#response.length * bytesPerObject);
    if (!this.#isOver) this.#call.sendParts(parts, this.#onAccepted);
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
