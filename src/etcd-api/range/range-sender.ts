import type { Task, Turns } from "../../base/turns.ts";
import { type CallContext, toClientError } from "../../server/calls/call-context.ts";
import type { RelayedCall } from "../../server/calls/relayed-methods.ts";
import {
  MessageSender,
  type MessageSource,
  type OnAccepted,
} from "../../server/kernel/message-sender.ts";
import { statusOf } from "../../wire/errors.ts";
import type { FrameParts } from "../../wire/frame-parts.ts";
import type { RangeResponse } from "./range-response.ts";

/** What a response is sent by. */
export type Pieces = Pick<RangeResponse, "maxPieceBytes" | "isDone" | "isMidMessage" | "take">;

interface SenderDeps {
  /** The name of the method, for logs. */
  readonly method: string;
  /** The turns in which the pieces of all responses are encoded. */
  readonly turns: Turns;
  /** Everything was sent, or nothing more can be. */
  readonly onEnd: () => void;
}

/**
 * Sends a large response: the next piece is encoded when the client has accepted the one before, in the time slices of the
 * event loop. So a slow client holds one piece. The responses of all connections share one queue of these slices, in which
 * callers and their connections take turns, so many of them delay neither each other nor other work.
 */
export class RangeSender implements MessageSource, Task {
  readonly #call: RelayedCall;
  readonly #response: Pieces;
  readonly #context: CallContext;
  readonly #deps: SenderDeps;
  readonly #sender: MessageSender<RelayedCall>;
  /** Whether it is its turn to encode a piece, which has room. */
  #hasTurn = false;

  constructor(call: RelayedCall, response: Pieces, context: CallContext, deps: SenderDeps) {
    this.#call = call;
    this.#response = response;
    this.#context = context;
    this.#deps = deps;
    this.#sender = new MessageSender<RelayedCall>(call, this, context);
  }

  start(): void {
    this.#sender.pump();
  }

  /** Sends nothing more. Idempotent. */
  stop(): void {
    this.#sender.close();
  }

  /** For `Turns`: encodes and sends a piece. */
  step(): boolean {
    this.#hasTurn = true;
    this.#sender.pump();
    return false;
  }

  get waitsFor(): "nothing" | "room" {
    return this.#hasTurn || this.#response.isDone ? "nothing" : "room";
  }

  next(): FrameParts | undefined {
    const call = this.#call;
    const response = this.#response;
    if (response.isDone) {
      call.sendTrailers({ "grpc-status": "0" });
      this.stop();
      return undefined;
    }
    if (!this.#hasTurn) {
      this.#sender.claim(response.maxPieceBytes);
      this.#deps.turns.add(call.owner, this);
      return undefined;
    }
    this.#hasTurn = false;
    const parts = response.take();
    call.isMidMessage = response.isMidMessage;
    return parts;
  }

  sendParts(parts: FrameParts, onAccepted: OnAccepted): void {
    this.#call.sendParts(parts, onAccepted);
  }

  /** It is reset. Its client sees UNAVAILABLE, after which clients of etcd read again. */
  slowStatus(): undefined {}

  onFailed(error: unknown): void {
    const { method } = this.#deps;
    const { logger } = this.#context;
    this.#sender.end(statusOf(toClientError(error, method, logger, this.#call)));
  }

  onClosed(): void {
    this.#deps.turns.delete(this.#call.owner, this);
    this.#deps.onEnd();
  }
}
