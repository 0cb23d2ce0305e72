import { statusOf } from "../../wire/errors.ts";
import type { RefusedKind } from "../pressure/memory-pressure.ts";
import type { CallContext } from "./call-context.ts";
import type { ServerCall } from "./server-call.ts";

/** What decides on the admission of a call. */
export interface Admission {
  /** Memory that the request takes while it waits, in bytes; undefined: the method does not wait. */
  readonly queuedBytes: number | undefined;
  /** What the call is refused as while memory is short; undefined: it is not refused. */
  readonly sheds: RefusedKind | undefined;
}

/**
 * The stage between authorization and handling, which decides whether and when a call is handled. A refusal ends the call,
 * and `handle` is not called. While memory is short, calls that `sheds` names are refused. A method with `queuedBytes`
 * waits for a time slice of its connection; the others are handled at once. Two limits need more than the decoded
 * request, so handlers apply them:
 *
 * - responses that the client has not accepted: `UnaryCall.admit`, before anything is read or written, since the
 *   handler knows the largest size of its response (call-admission.ts), and the watch sender before each batch;
 * - open streams: `OpenStreams.makeRoom`, once the request is known to be valid, since it may end another stream
 *   (kernel/open-streams.ts).
 *
 * A refusal costs no more than the status.
 */
export function admit(
  { streamOpenings, memoryPressure }: Pick<CallContext, "streamOpenings" | "memoryPressure">,
  call: ServerCall,
  { queuedBytes, sheds }: Admission,
  handle: () => void,
): void {
  const unlessShed = (proceed: () => void): void => {
    const refusal = sheds === undefined ? undefined : memoryPressure?.refusal(sheds);
    if (refusal === undefined) proceed();
    else call.end(statusOf(refusal));
  };
  unlessShed(() => {
    if (queuedBytes === undefined) handle();
    // Memory may have become short while it waited.
    else streamOpenings.add(call, queuedBytes, () => unlessShed(handle));
  });
}
