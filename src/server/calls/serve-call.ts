import type { Decoded } from "../../wire/decode.ts";
import { statusOf } from "../../wire/errors.ts";
import { refusalOfPath } from "../../wire/via.ts";
import type { RefusedKind } from "../pressure/memory-pressure.ts";
import { auditAllowed, auditDenied } from "./audit.ts";
import { authorize, authorizeRaw } from "./authorization.ts";

import { inSpanOf } from "./call-span.ts";
import type { BidiMethod, RawCall, RawMethod, SingleRequestMethod } from "./methods.ts";
import type { NextRequest, ServerCall } from "./server-call.ts";
import type { ServiceContext } from "./service-context.ts";

/*
 * The stages of a call after its request has been decoded: authorize, admit, handle, encode, end. They are the same whether
 * the call is served on its HTTP/2 stream (call-pipeline.ts) or by grpc-js (grpc-js/).
 */

/** Serves a call with one request. A request that could not be decoded ends the call. */
export function serveRequest(
  context: ServiceContext,
  method: SingleRequestMethod,
  call: ServerCall,
  { request, fault }: Decoded<unknown>,
): void {
  call.span?.authenticated(call.owner.caller);
  if (fault !== undefined) {
    call.end(statusOf(fault));
    return;
  }
  if (hasLapsed(context, method, call) || isRefusedByPath(context, call)) return;
  // Only unary calls are passed on.
  if (method.isStreaming) call.via = undefined;
  // Health has to respond on a new connection as well.
  if (method.sheds !== undefined && !mayConnect(context, call)) return;
  const { authorizer } = context;
  const { generation } = authorizer;
  if (!authorize(context, method, call, request)) return;
  const admission = { queuedBytes: method.queuedBytes?.(request), sheds: method.sheds };
  admit(context, call, admission, () => {
    // The policy may have changed while the call waited, and the credential may have expired or been revoked.
    if (hasLapsed(context, method, call)) return;
    const isCurrent = authorizer.generation === generation;
    if (!isCurrent && !authorize(context, method, call, request)) return;
    call.span?.event("admitted");
    inSpanOf(call, () => handle(method, call, request));
  });
}

/** The handler encodes its responses and ends the call. */
function handle(method: SingleRequestMethod, call: ServerCall, request: unknown): void {
  const { record } = call;
  // A stream is recorded when it is opened, and costs no more than another one from then on.
  if (method.isStreaming) call.record = undefined;
  const refusal = method.handle(call, request);
  if (method.isStreaming) record?.end(refusal?.code);
}

/** Serves a call with a stream of requests, which its handler reads with `next` and decodes. It needs no right. */
export function serveConversation(
  context: ServiceContext,
  method: BidiMethod,
  call: ServerCall,
  next: NextRequest,
): void {
  call.span?.authenticated(call.owner.caller);
  if (hasLapsed(context, method, call) || isRefusedByPath(context, call)) return;
  if (!mayConnect(context, call)) return;
  call.via = undefined;
  auditAllowed(context, method.name, call, undefined, undefined);
  const admission = { queuedBytes: undefined, sheds: "stream" } as const;
  admit(context, call, admission, () => method.converse(call, next));
}

/** Ends the call if it has passed this server before, or too many relays. */
function isRefusedByPath({ instanceId }: ServiceContext, call: ServerCall): boolean {
  if (call.via === undefined) return false;
  const refusal = refusalOfPath(call.via, instanceId);
  if (refusal === undefined) return false;
  call.end(statusOf(refusal));
  return true;
}

/**
 * Ends the call, and its connection, if its caller has too many connections; the call alone if its caller cancels too many.
 * Otherwise the connection counts from now on.
 */
function mayConnect({ callerLimits }: ServiceContext, call: ServerCall): boolean {
  const { owner } = call;
  const refusal = callerLimits.connectionRefusal(owner);
  if (refusal !== undefined) {
    // First, so that the response by HTTP/1 says that it is the last one.
    call.closeConnection();
    call.end(statusOf(refusal));
    return false;
  }
  const cancelling = callerLimits.cancelRefusal(owner.caller);
  if (cancelling !== undefined) call.end(statusOf(cancelling));
  return cancelling === undefined;
}

/** Serves a call whose request is not read here. */
export function serveRaw(
  context: ServiceContext,
  method: RawMethod,
  call: RawCall,
  start: () => void,
): void {
  call.span?.authenticated(call.owner.caller);
  if (hasLapsed(context, method, call) || !mayConnect(context, call)) return;
  if (!authorizeRaw(context, method, call)) return;
  admit(context, call, { queuedBytes: undefined, sheds: method.sheds }, () =>
    inSpanOf(call, start),
  );
}

/** Ends the call if its credential is no longer valid: its client may have sent the request long after the headers. */
function hasLapsed(
  context: ServiceContext,
  { name }: { readonly name: string },
  call: ServerCall,
): boolean {
  const error = context.credentials.lapsed(call);
  if (error === undefined) return false;
  const ending = statusOf(error);
  auditDenied(context, name, call, undefined, ending.code);
  call.end(ending);
  return true;
}

/** What decides on the admission of a call. */
interface Admission {
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
function admit(
  { streamOpenings, memoryPressure }: ServiceContext,
  call: ServerCall,
  { queuedBytes, sheds }: Admission,
  handle: () => void,
): void {
  const unlessShed = (proceed: () => void): void => {
    const refusal = sheds === undefined ? undefined : memoryPressure.refusal(sheds);
    if (refusal === undefined) proceed();
    else call.end(statusOf(refusal));
  };
  unlessShed(() => {
    if (queuedBytes === undefined) handle();
    // Memory may have become short while it waited.
    else streamOpenings.add(call, queuedBytes, () => unlessShed(handle));
  });
}
