import type { CallContext } from "./call-context.ts";
import type { ServerCall } from "./server-call.ts";

/**
 * The stage between decoding and handling. Every call passes through it, so authentication, authorisation and audit
 * belong here, ahead of the queue. A refusal ends the call, and `handle` is not called.
 *
 * Today it decides when a call is handled. A method with `queuedBytes` waits for a time slice of its connection; the
 * others are handled at once. Two limits need more than the decoded request, so handlers apply them:
 *
 * - responses that the client has not accepted: `UnaryContext.admit`, before anything is read or written, since the
 *   handler knows the largest size of its response (response-admission.ts), and the watch sender before each batch;
 * - open streams: `OpenStreams.makeRoom`, once the request is known to be valid, since it may end another stream
 *   (limits/open-streams.ts).
 *
 * `queuedBytes` is the memory that the request takes while it waits; undefined: the method does not wait.
 */
export function admit(
  { streamOpenings }: Pick<CallContext, "streamOpenings">,
  call: ServerCall,
  queuedBytes: number | undefined,
  handle: () => void,
): void {
  if (queuedBytes === undefined) handle();
  else streamOpenings.add(call, queuedBytes, handle);
}
