import type { status } from "@grpc/grpc-js";

/** The headers of W3C Trace Context, as a request has them. */
export interface TraceHeaders {
  readonly traceparent: string | string[] | undefined;
  readonly tracestate: string | string[] | undefined;
}

/** Makes the server spans of calls. */
export interface CallTracer {
  /**
   * Begins the span of a call, `method` as in metrics. The span is recorded if the client records its trace, and without
   * a trace of the client at random, and kept from `CallSpan.authenticated` on. Undefined: calls of this method have no
   * span.
   */
  begin(method: string, headers: TraceHeaders): CallSpan | undefined;
}

/** The trace of one call. It may be one that is not recorded: then it passes on that the trace is not recorded. */
export interface CallSpan {
  /** The id of the trace; undefined if the span is not recorded and the client has sent none. */
  readonly traceId: string | undefined;
  /** The id of the span; undefined if it is not recorded, or its caller is not known yet. */
  readonly spanId: string | undefined;
  /**
   * The caller is known. Without this the span is dropped when it ends. A span that the client has asked for is also
   * dropped, and not recorded any more, if `caller` has asked for too many lately. Idempotent.
   */
  authenticated(caller: object): void;
  /** Calls `work`. Calls to the store that begin in it, also later, are part of the trace while the span has not ended. */
  run<T>(work: () => T): T;
  /** Records that the call has reached a stage. */
  event(name: string): void;
  /** Ends the span with the status of the call; undefined: the call continues, as a stream that is open. Idempotent. */
  end(code: status | undefined): void;
}

/** What identifies the trace of a call. */
export interface TracedCall {
  readonly traceId: string | undefined;
  readonly span: CallSpan | undefined;
}

/** The fields of a call's log lines with its trace; none without a trace. */
export function traceFields(call: TracedCall | undefined): object {
  const traceId = call?.span?.traceId ?? call?.traceId;
  if (traceId === undefined) return {};
  const spanId = call?.span?.spanId;
  return { trace_id: traceId, ...(spanId === undefined ? {} : { span_id: spanId }) };
}

/** Calls `work` in the trace of a call. */
export function inSpanOf<T>({ span }: TracedCall, work: () => T): T {
  return span === undefined ? work() : span.run(work);
}
