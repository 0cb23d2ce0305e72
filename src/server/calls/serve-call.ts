import type { Decoded } from "../../wire/decode.ts";
import { statusOf } from "../../wire/errors.ts";
import { admit } from "./admission.ts";
import type { CallContext } from "./call-context.ts";
import type { BidiMethod, SingleRequestMethod } from "./methods.ts";
import type { NextRequest, ServerCall } from "./server-call.ts";

/*
 * The stages of a call after its request has been decoded: admit, handle, encode, end. They are the same whether the
 * call is served on its HTTP/2 stream (call-pipeline.ts) or by grpc-js (grpc-js/).
 */

/** Serves a call with one request. A request that could not be decoded ends the call. */
export function serveRequest(
  context: Pick<CallContext, "streamOpenings">,
  method: SingleRequestMethod,
  call: ServerCall,
  { request, fault }: Decoded<unknown>,
): void {
  if (fault !== undefined) {
    call.end(statusOf(fault));
    return;
  }
  // The handler encodes its responses and ends the call.
  admit(context, call, method.queuedBytes?.(request), () => method.handle(call, request));
}

/** Serves a call with a stream of requests, which its handler reads with `next` and decodes. */
export function serveConversation(
  context: Pick<CallContext, "streamOpenings">,
  method: BidiMethod,
  call: ServerCall,
  next: NextRequest,
): void {
  admit(context, call, undefined, () => method.converse(call, next));
}
