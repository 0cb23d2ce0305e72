import type { Decoded } from "../../wire/decode.ts";
import { statusOf } from "../../wire/errors.ts";
import { type FrameParts, frameOf, sizeOf } from "../../wire/frame-parts.ts";
import type { Reservation } from "../limits/byte-pool.ts";
import { type CallContext, toClientError } from "./call-context.ts";
import { ResponseAdmission } from "./response-admission.ts";
import { RefusedRequest, type ServerCall } from "./server-call.ts";

/** What a call may keep of its request uncharged, in bytes: the number of calls bounds that. */
export const freeRetainedBytes = 1024;

/** Why a call's signal is aborted. One for all: nobody reads more of it than that it is this one. */
const clientGone = new Error("The client no longer waits for the answer.");

/** What a call with one answer is served with. */
export interface UnaryContext {
  /** Is aborted when nobody waits for the answer any more, be it for a deadline, a cancel or a lost connection. */
  readonly signal: AbortSignal;
  /** The client's. */
  readonly connection: object;
  /** The size of the request. */
  readonly requestBytes: number;
  /**
   * Has to be awaited before anything is read or written; see `ResponseAdmission`. The later the better: what is waited for
   * afterwards holds up all else that the connection asks for.
   */
  admit(maxBytes: number): Promise<void> | undefined;
  /**
   * Charges the connection with what is kept of the request, in bytes, until the call is answered. A call that has to go
   * for that ends, and its signal is aborted: only for those that do nothing but read. In place of what was said before.
   */
  retain(bytes: number): void;
}

/** Encodes an answer, in parts that follow one another. Is called once there is room for it. */
export type Encode = () => FrameParts;

/**
 * Serves calls with one answer: `answer` does what is asked for, or throws, and gives what encodes the answer. `method`
 * is its name in logs and metrics.
 */
export function unary<Request>(
  context: CallContext,
  method: string,
  answer: (request: Request, call: UnaryContext) => Promise<Encode>,
): (call: ServerCall, request: Decoded<Request>) => void {
  const serve = async (
    call: ServerCall,
    { request, fault }: Decoded<Request>,
    gone: AbortController,
  ): Promise<void> => {
    const { signal } = gone;
    const turn = new ResponseAdmission(context, call, signal);
    const { connection, requestBytes } = call;
    let kept: Reservation | undefined;
    const retain = (bytes: number): void => {
      if (bytes <= freeRetainedBytes && kept === undefined) return;
      kept ??= context.retainedRequests.reserve(connection, 0, () => {
        call.end(statusOf(context.tooMuchRetained()));
        gone.abort(clientGone);
      });
      kept.resize(bytes);
    };
    try {
      if (fault !== undefined) throw fault;
      const admit = (maxBytes: number): Promise<void> | undefined => turn.admit(maxBytes);
      const encode = await answer(request, { signal, connection, requestBytes, admit, retain });
      const wait = turn.mayEncode();
      if (wait !== undefined) await wait;
      if (signal.aborted || call.isOver) return;
      const message = encode();
      turn.answer(frameOf(...message));
      context.observer?.sent(method, 1, sizeOf(message));
    } catch (error) {
      // What a call that was given up comes to is neither told nor logged.
      if (signal.aborted || call.isOver) return;
      if (error instanceof RefusedRequest) call.end(error.status);
      else call.end(statusOf(toClientError(error, method, context.logger)));
    } finally {
      turn.release();
      kept?.release();
    }
  };
  return (call, request) => {
    const gone = new AbortController();
    call.onOver(() => gone.abort(clientGone));
    void serve(call, request, gone);
  };
}
