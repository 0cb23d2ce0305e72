import type { FrameParts } from "../../wire/frame-parts.ts";
import type { SendReservation } from "../limits/send-budget.ts";
import type { CallContext } from "./call-context.ts";
import type { ServerCall } from "./server-call.ts";

/**
 * Memory of a unary call whose response is not accepted, beside the response, in bytes: its HTTP/2 stream and listeners.
 * Many calls with small responses take far more memory than these.
 */
const callBytes = 4 * 1024;

/** Sends the response of a unary call, and holds its room in the send budget until the client has accepted it. */
export function sendResponse(
  { slowClients }: Pick<CallContext, "slowClients">,
  call: ServerCall,
  parts: FrameParts,
  reservation: SendReservation,
): void {
  call.onClosed(() => reservation.release());
  const drop = (): void => {
    slowClients?.ended(call);
    call.reset();
  };
  reservation.send(call.respond(parts), drop, callBytes);
}
