import type { FrameParts } from "../../wire/frame-parts.ts";
import type { SendReservation } from "../limits/send-budget.ts";
import type { CallContext } from "./call-context.ts";
import { answerNotTaken, outOfRequestRoom } from "./refusals.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";

const callOver = new Error("The call has ended while it waited.");

/**
 * A call's place among what its connection has not accepted yet: while that is too much, its request waits, and
 * its answer is not built. What waits is charged to the connection like a request that has not come whole.
 */
export class ResponseAdmission {
  readonly #context: CallContext;
  readonly #call: ServerCall;
  readonly #signal: AbortSignal;
  #reservation: SendReservation | undefined;
  #isWaiting = false;

  /** `signal` is aborted when nobody waits for the answer any more. */
  constructor(context: CallContext, call: ServerCall, signal: AbortSignal) {
    this.#context = context;
    this.#call = call;
    this.#signal = signal;
  }

  /**
   * Has the call wait until its connection has room for an answer of at most so many bytes; undefined: it has. To be
   * called once, before anything is read or written for it. Rejects with the signal's reason, and with a
   * `RefusedRequest` if the connection has no room for what waits, or accepts nothing for too long.
   */
  admit(maxBytes: number): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    const { connection } = this.#call;
    this.#reservation = sendBudget.take(connection, maxBytes);
    if (this.#reservation !== undefined) return undefined;
    return this.#wait((onRoom) =>
      sendBudget.wait(connection, maxBytes, (share) => {
        this.#reservation = share;
        onRoom();
      }),
    );
  }

  /** As `admit`, until there is room for answers in all. To be called just before the answer is encoded. */
  mayEncode(): Promise<void> | undefined {
    const { sendBudget } = this.#context;
    if (!sendBudget.isFull) return undefined;
    return this.#wait((onRoom) => sendBudget.whenNotFull(this.#call.connection, onRoom));
  }

  /** Sends the answer, and releases its room when it has been accepted. */
  answer(frame: FrameParts): void {
    const call = this.#call;
    const share = this.#reservation ?? this.#context.sendBudget.force(call.connection);
    this.#reservation = undefined;
    call.onClosed(() => share.release());
    share.send(call.answer(frame), () => call.reset());
  }

  /** There is no answer: gives its room back. Idempotent, and harmless after `answer`. */
  release(): void {
    this.#reservation?.release();
    this.#reservation = undefined;
  }

  /** `begin` begins to wait, and returns what gives up. */
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
        // A connection that closes ends its calls one after the other, and nothing is to be done for the rest.
        if (this.#call.isOver) end(() => reject(callOver));
        else end(resolve);
      });
      const timer = clock.setTimeout(
        () => refuse(new RefusedRequest(answerNotTaken(responseFlushMs))),
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
