import type { Decoded } from "../wire/decode.ts";
import { statusOf } from "../wire/errors.ts";
import { AnswerTurn } from "./answer-turn.ts";
import { type CallContext, presentError } from "./calls.ts";
import {
  type FrameParts,
  frameOf,
  RefusedRequest,
  type ServerCall,
  sizeOf,
} from "./server-call.ts";

/** Why a call's signal is aborted. One for all: nobody reads more of it than that it is this one. */
const clientGone = new Error("The client no longer waits for the answer.");

/** What a call with one answer is served with. */
export interface Answering {
  /** Is aborted when nobody waits for the answer any more, be it for a deadline, a cancel or a lost connection. */
  readonly signal: AbortSignal;
  /** The client's. */
  readonly connection: object;
  /** The size of the request. */
  readonly requestBytes: number;
  /** Has to be awaited before anything is read or written; see `AnswerTurn`. */
  admit(maxBytes: number): Promise<void> | undefined;
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
  answer: (request: Request, call: Answering) => Promise<Encode>,
): (call: ServerCall, request: Decoded<Request>) => void {
  const serve = async (
    call: ServerCall,
    { request, fault }: Decoded<Request>,
    signal: AbortSignal,
  ): Promise<void> => {
    const turn = new AnswerTurn(context, call, signal);
    const { connection, requestBytes } = call;
    try {
      if (fault !== undefined) throw fault;
      const admit = (maxBytes: number): Promise<void> | undefined => turn.admit(maxBytes);
      const encode = await answer(request, { signal, connection, requestBytes, admit });
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
      else call.end(statusOf(presentError(error, method, context.logger)));
    } finally {
      turn.release();
    }
  };
  return (call, request) => {
    const gone = new AbortController();
    call.onOver(() => gone.abort(clientGone));
    void serve(call, request, gone.signal);
  };
}
