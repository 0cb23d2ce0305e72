import { type FrameParts, sizeOf } from "../../wire/frame-parts.ts";
import type { CallContext } from "./call-context.ts";
import { nextNotAccepted, responseNotAccepted } from "./refusals.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";

type SenderContext = Pick<CallContext, "clock" | "sendBudget" | "responseFlushMs" | "slowClients">;

/**
 * Sends the responses of a stream of requests, one at a time. While the connection is at its send budget, no response is
 * built. A client that does not accept one within `responseFlushMs` gets SLOW_CONSUMER, or a reset within a response.
 */
export class ResponseSender {
  readonly #context: SenderContext;
  readonly #call: ServerCall;
  #end: (() => void) | undefined;

  constructor(context: SenderContext, call: ServerCall) {
    this.#context = context;
    this.#call = call;
  }

  /**
   * Builds a response once there is room for it, and sends it. Resolves when the client has accepted it, or when the call
   * is over. Rejects with a `RefusedRequest` if there is no room for `responseFlushMs`, or with what `build` throws.
   */
  send(build: () => FrameParts): Promise<void> {
    const { clock, sendBudget, responseFlushMs } = this.#context;
    const call = this.#call;
    return new Promise((resolve, reject) => {
      let stopWaiting = (): void => {};
      let timer = clock.setTimeout(
        () => end(() => reject(new RefusedRequest(responseNotAccepted(responseFlushMs)))),
        responseFlushMs,
      );
      const end = (settle: () => void): void => {
        this.#end = undefined;
        stopWaiting();
        timer.cancel();
        settle();
      };
      this.#end = () => end(resolve);
      // In one step, since the budget grants room to the next response when this one is not counted by then.
      const buildAndSend = (): void => {
        try {
          timer.cancel();
          timer = clock.setTimeout(() => this.#endSlow(responseFlushMs), responseFlushMs);
          const frame = joined(build());
          const reservation = sendBudget.force(call.connection);
          call.onClosed(() => reservation.release());
          reservation.send([frame], () => this.#endSlow());
          call.send(frame, () => {
            reservation.release();
            this.#end?.();
          });
        } catch (error) {
          end(() => reject(error));
        }
      };
      if (sendBudget.mayBuild(call.connection)) buildAndSend();
      else stopWaiting = sendBudget.whenMayBuild(call.connection, buildAndSend);
    });
  }

  /** Drops a response that its client does not accept: nothing for `acceptedNothingMs`, if that is known. */
  #endSlow(acceptedNothingMs?: number): void {
    const call = this.#call;
    if (!call.isOver) this.#context.slowClients?.ended(call, { acceptedNothingMs });
    if (call.withdraw()) call.end(nextNotAccepted());
    else call.reset();
  }

  /** The call is over: a response that is outstanding is neither accepted nor refused. */
  over(): void {
    this.#end?.();
  }
}

/** Joins the parts in a buffer of their own: one from Node.js' pool would keep 64 KiB alive. */
function joined(parts: FrameParts): Buffer {
  const frame = Buffer.allocUnsafeSlow(sizeOf(parts));
  let end = 0;
  for (const part of parts) {
    frame.set(part, end);
    end += part.byteLength;
  }
  return frame;
}
