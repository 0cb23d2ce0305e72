import { type Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  context,
  propagation,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";

const metadataSetter = {
  set: (metadata: Metadata, name: string, value: string) => metadata.set(name, value),
};

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
  const [, service = "", method = ""] = path.split("/");
  const { hostname, port } = new URL(endpoint);
  const span = trace.getTracer("watch-fanout").startSpan(`${service}/${method}`, {
    kind: SpanKind.CLIENT,
    attributes: {
      ...{ "rpc.system": "grpc", "rpc.service": service, "rpc.method": method },
      "server.address": hostname,
      ...(port === "" ? {} : { "server.port": Number(port) }),
    },
  });
  injectSpan(span, metadata);
  return new ClientSpan(span);
}

/** Adds the trace of a span to the metadata of its call. No effect where no tracing is set up. */
export function injectSpan(span: Span, metadata: Metadata): void {
  propagation.inject(trace.setSpan(context.active(), span), metadata, metadataSetter);
}

/** The span of a call. */
export class ClientSpan {
  readonly #span: Span;

  constructor(span: Span) {
    this.#span = span;
  }

  /** The call has ended; null: with a response. */
  ended(error: Pick<ServiceError, "code"> | null): void {
    const code = error === null ? status.OK : error.code;
    this.#span.setAttribute("rpc.grpc.status_code", code);
    // The texts of errors are left out, since they may have keys.
    if (error !== null) this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#span.end();
  }
}
