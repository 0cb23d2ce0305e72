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
  TraceFlags,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { rpcAttributes, statusAttributes } from "../base/client-span.ts";
import type { Clock } from "../base/clock.ts";
import { Rate } from "../base/rate.ts";
import type { CallSpan, CallTracer, TraceHeaders } from "../server/server.ts";

/** Number of calls per second that are recorded because their clients record them: of each caller, and of all. */
const maxPerCaller = 100;
const maxInAll = 1_000;

/**
 * Bounds the calls that are recorded because their clients record their traces. Without it a client could have a span
 * exported, and spans at etcd recorded, for each of its calls.
 */
export class TraceAllowance {
  readonly #clock: Clock;
  readonly #perCaller: number;
  readonly #inAll: Rate;
  /** Those of callers that are forgotten are dropped with them. */
  readonly #ofCallers = new WeakMap<object, Rate>();
  #refused = 0;

  /** `servesWorkers`: the callers are workers of this service, which have bounded the calls of their clients. */
  constructor(clock: Clock, servesWorkers: boolean = false) {
    this.#clock = clock;
    this.#perCaller = servesWorkers ? maxInAll : maxPerCaller;
    this.#inAll = new Rate(clock, maxInAll);
  }

  /** Number of calls that were not recorded for lack of it. */
  get refused(): number {
    return this.#refused;
  }

  /** Takes a call of a caller. Returns whether it may be recorded. */
  take(caller: object): boolean {
    const isAllowed = this.#rateOf(caller).take() && this.#inAll.take();
    if (!isAllowed) this.#refused++;
    return isAllowed;
  }

  #rateOf(caller: object): Rate {
    let rate = this.#ofCallers.get(caller);
    if (rate === undefined) {
      rate = new Rate(this.#clock, this.#perCaller);
      this.#ofCallers.set(caller, rate);
    }
    return rate;
  }
}

/**
 * Makes the server spans of calls, with the attributes of OpenTelemetry's conventions for RPCs and nothing of what is
 * read or written. Health and reflection are left out: probes would be most of the traces.
 */
export class RpcTracer implements CallTracer {
  readonly #tracer: Tracer;
  readonly #propagator: TextMapPropagator;
  readonly #allowance: TraceAllowance;

  constructor(tracer: Tracer, propagator: TextMapPropagator, allowance: TraceAllowance) {
    this.#tracer = tracer;
    this.#propagator = propagator;
    this.#allowance = allowance;
  }

  begin(name: string, headers: TraceHeaders): CallSpan | undefined {
    if (name.startsWith("grpc.")) return undefined;
    const parent = this.#propagator.extract(ROOT_CONTEXT, headers, defaultTextMapGetter);
    const options = { kind: SpanKind.SERVER, attributes: rpcAttributes(name) };
    const span = this.#tracer.startSpan(name, options, parent);
    return new RpcSpan(span, parent, this.#allowance);
  }
}

class RpcSpan implements CallSpan {
  readonly traceId: string | undefined;
  readonly #parent: Context;
  readonly #allowance: TraceAllowance;
  #span: Span;
  #context: Context;
  /** Whether the span is exported when it ends. A span that is never ended is not. */
  #isKept = false;

  constructor(span: Span, parent: Context, allowance: TraceAllowance) {
    const { traceId } = span.spanContext();
    this.traceId = span.isRecording() ? traceId : trace.getSpanContext(parent)?.traceId;
    this.#span = span;
    this.#parent = parent;
    this.#context = trace.setSpan(parent, span);
    this.#allowance = allowance;
  }

  get spanId(): string | undefined {
    return this.#isKept ? this.#span.spanContext().spanId : undefined;
  }

  authenticated(caller: object): void {
    if (this.#isKept || !this.#span.isRecording()) return;
    const ofClient = trace.getSpanContext(this.#parent);
    if (ofClient === undefined || this.#allowance.take(caller)) {
      this.#isKept = true;
      return;
    }
    // As if the client did not record its trace: etcd does not record it either.
    this.#span = trace.wrapSpanContext({ ...ofClient, traceFlags: TraceFlags.NONE });
    this.#context = trace.setSpan(this.#parent, this.#span);
  }

  run<T>(work: () => T): T {
    return context.with(this.#context, work);
  }

  event(name: string): void {
    this.#span.addEvent(name);
  }

  end(code: status | undefined): void {
    if (!this.#isKept || !this.#span.isRecording()) return;
    if (code !== undefined) {
      this.#span.setAttributes(statusAttributes(code, isServerFault(code)));
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
