import { status } from "@grpc/grpc-js";
import {
  type Context,
  context,
  defaultTextMapGetter,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type TextMapPropagator,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import type { CallSpan, CallTracer, TraceHeaders } from "../server/server.ts";

/**
 * Makes the server spans of calls, with the attributes of OpenTelemetry's conventions for RPCs and nothing of what is
 * read or written. Health and reflection are left out: probes would be most of the traces.
 */
export class RpcTracer implements CallTracer {
  readonly #tracer: Tracer;
  readonly #propagator: TextMapPropagator;

  constructor(tracer: Tracer, propagator: TextMapPropagator) {
    this.#tracer = tracer;
    this.#propagator = propagator;
  }

  begin(name: string, headers: TraceHeaders): CallSpan | undefined {
    if (name.startsWith("grpc.")) return undefined;
    const parent = this.#propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
    const [service = "", method = ""] = name.split("/");
    const attributes = { "rpc.system": "grpc", "rpc.service": service, "rpc.method": method };
    const span = this.#tracer.startSpan(name, { kind: SpanKind.SERVER, attributes }, parent);
    return new RpcSpan(span, parent);
  }
}

class RpcSpan implements CallSpan {
  readonly traceId: string | undefined;
  readonly spanId: string | undefined;
  readonly #span: Span;
  readonly #context: Context;

  constructor(span: Span, parent: Context) {
    const { traceId, spanId } = span.spanContext();
    const isRecorded = span.isRecording();
    this.traceId = isRecorded ? traceId : trace.getSpanContext(parent)?.traceId;
    this.spanId = isRecorded ? spanId : undefined;
    this.#span = span;
    this.#context = trace.setSpan(parent, span);
  }

  run<T>(work: () => T): T {
    return context.with(this.#context, work);
  }

  event(name: string): void {
    this.#span.addEvent(name);
  }

  end(code: status | undefined): void {
    if (!this.#span.isRecording()) return;
    if (code !== undefined) {
      this.#span.setAttribute("rpc.grpc.status_code", code);
      if (isServerFault(code)) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.#span.end();
  }
}

/** Whether a status is a fault of the server, not of the request. */
function isServerFault(code: status): boolean {
  switch (code) {
    case status.UNKNOWN:
    case status.DEADLINE_EXCEEDED:
    case status.UNIMPLEMENTED:
    case status.INTERNAL:
    case status.UNAVAILABLE:
    case status.DATA_LOSS:
      return true;
    default:
      return false;
  }
}
