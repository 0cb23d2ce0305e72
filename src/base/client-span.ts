import type { OutgoingHttpHeaders } from "node:http2";
import type { Metadata } from "@grpc/grpc-js";
import {
  type Attributes,
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";
import { codeName, codes } from "./grpc-codes.ts";

/** What takes the headers of a trace. */
interface Carrier {
  set(name: string, value: string): unknown;
}

const metadataSetter = {
  set: (carrier: Carrier, name: string, value: string) => carrier.set(name, value),
};

const headerSetter = {
  set: (headers: OutgoingHttpHeaders, name: string, value: string) => {
    headers[name] = value;
  },
};

/** What the span of a call begins with. `method` is `package.Service/Method`. */
export function rpcAttributes(method: string): Attributes {
  return { "rpc.system.name": "grpc", "rpc.method": method };
}

/** Of the server at `address`, such as `host:50051` or `[::1]:50051`. */
export function addressAttributes(address: string): Attributes {
  const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(address) ?? [];
  if (host === undefined) return { "server.address": address };
  return { "server.address": host, "server.port": Number(port) };
}

/** What the status of a call adds to its span. `code` may be one that gRPC does not define. */
export function statusAttributes(code: number, isError: boolean): Attributes {
  const name = codeName(code);
  return isError ? { "rpc.status_code": name, "error.type": name } : { "rpc.status_code": name };
}

/**
 * Begins the client span of a call to the store that a traced call makes, and adds its trace to `metadata`, so that the
 * server's spans are part of the same trace. Undefined: nothing is recorded. That costs nothing where no tracing is set up.
 *
 * `path` is `/package.Service/Method`, `endpoint` a URL. Neither keys nor credentials become part of a span.
 */
export function beginClientSpan(
  path: string,
  endpoint: string,
  metadata: Metadata,
): ClientSpan | undefined {
  const parent = trace.getActiveSpan();
  if (parent === undefined) return undefined;
  if (!parent.isRecording()) {
    // A span that was recorded has ended: this is work in the background that its call has started.
    const isRecorded = (parent.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;
    if (!isRecorded) propagation.inject(context.active(), metadata, metadataSetter);
    return undefined;
  }
  const span = startClientSpan(path.slice(1), endpoint);
  injectSpan(span, metadata);
  return new ClientSpan(span);
}

/**
 * The same for a call that is passed on, of which `headers` are the request's. Without a span of its own it keeps those that
 * its client has sent.
 */
export function beginForwardedSpan(
  method: string,
  endpoint: string,
  headers: OutgoingHttpHeaders,
): ClientSpan | undefined {
  if (trace.getActiveSpan()?.isRecording() !== true) return undefined;
  const span = startClientSpan(method, endpoint);
  propagation.inject(trace.setSpan(context.active(), span), headers, headerSetter);
  return new ClientSpan(span);
}

/** Adds the trace of a span to the metadata of its call. No effect where no tracing is set up. */
export function injectSpan(span: Span, metadata: Carrier): void {
  propagation.inject(trace.setSpan(context.active(), span), metadata, metadataSetter);
}

/** The span of a call. */
export class ClientSpan {
  readonly #span: Span;

  constructor(span: Span) {
    this.#span = span;
  }

  /** The call has ended; null: with a response. */
  ended(error: { readonly code: number } | null): void {
    const code = error === null ? codes.OK : error.code;
    this.#span.setAttributes(statusAttributes(code, error !== null));
    // The texts of errors are left out, since they may have keys.
    if (error !== null) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}

function startClientSpan(method: string, endpoint: string): Span {
  const attributes = { ...rpcAttributes(method), ...addressAttributes(new URL(endpoint).host) };
  return trace.getTracer("watch-fanout").startSpan(method, { kind: SpanKind.CLIENT, attributes });
}
