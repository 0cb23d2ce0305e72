import type { Decoded } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import { type CallContext, presentError } from "./calls.ts";
import { frameOf, type ServerCall, sizeOf } from "./server-call.ts";

/** Why a call's signal is aborted. One for all: nobody reads more of it than that it is this one. */
const clientGone = new Error("The client no longer waits for the answer.");

/**
 * Serves calls with one answer: `answer` gives its encoding, in parts, or throws, and the signal is aborted when nobody
 * waits for it any more, be it for a deadline, a cancel or a lost connection. `connection` is the client's. `method` is its name in
 * logs and metrics.
 */
export function unary<Request>(
  context: CallContext,
  method: string,
  answer: (
    request: Request,
    signal: AbortSignal,
    connection: object,
  ) => Promise<readonly Uint8Array[]>,
): (call: ServerCall, request: Decoded<Request>) => void {
  const serve = async (
    call: ServerCall,
    { request, fault }: Decoded<Request>,
    signal: AbortSignal,
  ): Promise<void> => {
    try {
      if (fault !== undefined) throw fault;
      const message = await answer(request, signal, call.connection);
      if (signal.aborted) return;
      call.answer(frameOf(...message));
      context.observer?.sent(method, 1, sizeOf(message));
    } catch (error) {
      // What a call that was given up comes to is neither told nor logged.
      if (!signal.aborted) call.end(statusOf(presentError(error, method, context.logger)));
    }
  };
  return (call, request) => {
    const gone = new AbortController();
    call.onOver(() => gone.abort(clientGone));
    void serve(call, request, gone.signal);
  };
}
