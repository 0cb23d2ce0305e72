import type { handleUnaryCall } from "@grpc/grpc-js";
import type { Decoded } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import { type CallContext, methodOf, presentError, resetUnlessClosed } from "./calls.ts";
import { http2StreamOf } from "./http2-stream.ts";

/** Why a call's signal is aborted. One for all: nobody reads more of it than that it is this one. */
const clientGone = new Error("The client no longer waits for the answer.");

/**
 * A handler for calls with one answer: `answer` gives its encoding or throws, and the signal is aborted
 * when nobody waits for it any more, be it for a deadline, a cancel or a lost connection.
 */
export function unaryCall<Request>(
  context: CallContext,
  answer: (request: Request, signal: AbortSignal) => Promise<Buffer>,
): handleUnaryCall<Decoded<Request>, Buffer> {
  return async (call, callback) => {
    const method = methodOf(call.getPath());
    const gone = new AbortController();
    const abort = (): void => gone.abort(clientGone);
    call.once("cancelled", abort);
    try {
      const { request, fault } = call.request;
      if (fault !== undefined) throw fault;
      const bytes = await answer(request, gone.signal);
      callback(null, bytes);
      context.observer?.sent(method, 1, bytes.byteLength);
    } catch (error) {
      // What a call that was given up comes to is neither told nor logged.
      if (!gone.signal.aborted) callback(statusOf(presentError(error, method, context.logger)));
    } finally {
      // grpc-js calls every end a cancel, also that of a call that is answered.
      call.off("cancelled", abort);
      resetUnlessClosed(http2StreamOf(call), context.responseFlushMs, context.clock);
    }
  };
}
