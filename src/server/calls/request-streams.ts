import type { Turns } from "../../base/turns.ts";
import { statusOf } from "../../wire/errors.ts";
import type { ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * Whether a call with a stream of requests may be open; otherwise it is over, or is ended. Ends its span, which would last as
 * long as the stream.
 */
export function admitStream(call: ServerCall, { streams }: ServiceContext): boolean {
  if (call.isOver) return false;
  // The span has the status of a refusal.
  const refusal = streams.makeRoom(call.owner);
  if (refusal !== undefined) {
    call.end(statusOf(refusal));
    return false;
  }
  call.span?.end(undefined);
  call.span = undefined;
  return true;
}

/**
 * Handles one request of a stream in a turn of its caller, as thousands may arrive at once. Resolves when the next one may be,
 * and rejects as `handle`.
 */
export function inTurn(
  turns: Turns,
  { owner }: ServerCall,
  handle: () => Promise<void>,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const step = (): boolean => {
      handle().then(resolve, reject);
      return false;
    };
    turns.start(owner, { step });
  });
}
