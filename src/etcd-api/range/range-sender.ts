import type { Notifiable, TimeSliceQueue } from "../../base/time-slice-queue.ts";
import { type CallContext, toClientError } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import { MessageSender } from "../../server/kernel/message-sender.ts";
import { statusOf } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import type { RangeResponse } from "./range-response.ts";

/** What a response is sent by. */
export type Pieces = Pick<RangeResponse, "maxPieceBytes" | "isDone" | "isMidMessage" | "take">;

interface SenderDeps {
  /** The name of the method, for logs. */
  readonly method: string;
  /** The turns in which the pieces of all responses are encoded. */
  readonly turns: TimeSliceQueue;
  /** Everything was sent, or nothing more can be. */
  readonly onEnd: () => void;
}

/**
 * Sends a large response: the next piece is encoded when the client has accepted the one before, in the time slices of the
 * event loop. So a slow client holds one piece. The responses of all connections share one queue of these slices, in which
 * callers and their connections take turns, so many of them delay neither each other nor other work. A client that accepts
 * too little is reset, and sees UNAVAILABLE, after which clients of etcd read again.
 */
export class RangeSender extends MessageSender<RelayedCall, CallContext> implements Notifiable {
  protected override readonly isOneMessage = true;
  readonly #response: Pieces;
  readonly #deps: SenderDeps;
  /** Whether it is its turn to encode a piece, which has room. */
  #hasTurn = false;

  constructor(call: RelayedCall, response: Pieces, context: CallContext, deps: SenderDeps) {
    super(call, context);
    this.#response = response;
    this.#deps = deps;
  }

  /** For `TimeSliceQueue`. */
  notify(): void {
    if (this.isOver) return;
    this.#hasTurn = true;
    this.pump();
  }

  protected override get waitsFor(): "nothing" | "room" {
    return this.#hasTurn || this.#response.isDone ? "nothing" : "room";
  }

  protected override next(): FrameParts | undefined {
    const { call } = this;
    const response = this.#response;
    if (response.isDone) {
      call.sendTrailers({ "grpc-status": "0" });
      this.close();
      return undefined;
    }
    if (!this.#hasTurn) {
      this.claim(response.maxPieceBytes);
      this.#deps.turns.enqueue(this, call.owner);
      return undefined;
    }
    this.#hasTurn = false;
    const parts = response.take();
    call.isMidMessage = response.isMidMessage;
    return parts;
  }

  protected override onFailed(error: unknown): void {
    const { method } = this.#deps;
    this.end(statusOf(toClientError(error, method, this.context.logger, this.call)));
  }

  protected override onClosed(): void {
    this.#deps.onEnd();
  }
}
