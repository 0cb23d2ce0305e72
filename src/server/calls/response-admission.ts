import type { FrameParts } from "../../wire/frame-parts.ts";
import type { SendReservation } from "../limits/send-budget.ts";
import type { CallContext } from "./call-context.ts";
import { outOfRequestRoom, responseNotAccepted } from "./refusals.ts";
import { sendResponse } from "./send-response.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";

const callOver = new Error("The call ended while it waited.");

/**
 * Bounds the responses that a connection has not accepted: while they exceed the bound, further calls of the connection
 * wait and their responses are not built. A waiting request is charged to its connection like one that is incomplete.
 */
export class ResponseAdmission {
  readonly #context: CallContext;
  readonly #call: ServerCall;
  readonly #signal: AbortSignal;
  #reservation: SendReservation | undefined;
  #isWaiting = false;

  /** `signal` is aborted when the client no longer waits for the response. */
  constructor(context: CallContext, call: ServerCall, signal: AbortSignal) {
    this.#context = context;
    this.#call = call;
    this.#signal = signal;
  }

  /**
   * Waits until the connection has room for a response of at most `maxBytes`; undefined: it has room now. Call it once,
   * before anything is read or written for the call. Rejects with the signal's reason, and with a `RefusedRequest` if
   * the waiting request is evicted, or if the connection accepts too little for `responseFlushMs`.
   */
  admit(maxBytes: number): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    const { connection } = this.#call;
    this.#reservation = sendBudget.take(connection, maxBytes);
    if (this.#reservation !== undefined) return undefined;
    return this.#wait((onRoom) =>
      sendBudget.wait(connection, maxBytes, (reservation) => {
        this.#reservation = reservation;
        onRoom();
      }),
    );
  }

  /** Like `admit`, but waits for room across all connections. Call it just before the response is encoded. */
  mayEncode(): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    if (!sendBudget.isFull) return undefined;
    return this.#wait((onRoom) =>
      sendBudget.whenNotFull(this.#call.connection, () => {
        // The response is encoded in a later step.
        this.#reservation?.claim();
        onRoom();
      }),
    );
  }

  /** Sends the response, and releases its room when the client has accepted it. */
  respond(frame: FrameParts): void {
    const call = this.#call;
    const reservation = this.#reservation ?? this.#context.sendBudget.force(call.connection);
    this.#reservation = undefined;
    sendResponse(this.#context, call, frame, reservation);
  }

  /** Releases the room of a call without a response. Idempotent; no effect after `respond`. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }

  /** `begin` starts to wait, and returns a function that stops it. */
  #wait(begin: (onRoom: () => void) => () => void): Promise<void> {
    const { clock, requestPool, responseFlushMs, maxUnreadBytesPerConnection } = this.#context;
    const { connection, requestBytes } = this.#call;
    const signal = this.#signal;
    signal.throwIfAborted();
    return new Promise((resolve, reject) => {
      const end = (settle: () => void): void => {
        if (!this.#isWaiting) return;
        this.#isWaiting = false;
        stopWaiting();
        signal.removeEventListener("abort", onAbort);
        timer.cancel();
        reservation.release();
        settle();
      };
      const onAbort = (): void => end(() => reject(signal.reason));
      const refuse = (why: RefusedRequest): void => end(() => reject(why));
      this.#isWaiting = true;
      const stopWaiting = begin(() => {
        // A connection that closes ends its calls one after the other, which makes room: the remaining ones must not run.
        if (this.#call.isOver) end(() => reject(callOver));
        else end(resolve);
      });
      const timer = clock.setTimeout(
        () => refuse(new RefusedRequest(responseNotAccepted(responseFlushMs))),
        responseFlushMs,
      );
      signal.addEventListener("abort", onAbort);
      const reservation = requestPool.reserve(connection, 0, () =>
        refuse(new RefusedRequest(outOfRequestRoom(maxUnreadBytesPerConnection))),
      );
      reservation.resize(requestBytes);
    });
  }
}
