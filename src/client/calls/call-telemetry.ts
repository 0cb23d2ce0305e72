import {
  type Attributes,
  isSpanContextValid,
  type Meter,
  type MeterProvider,
  metrics,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
} from "@opentelemetry/api";
import {
  addressAttributes,
  injectSpan,
  rpcAttributes,
  statusAttributes,
} from "../../base/client-span.ts";
import type { Clock } from "../../base/clock.ts";
import { WatchFanoutError } from "../../base/errors.ts";
import { codes } from "../../base/grpc-codes.ts";
import { wireForms } from "../../wire/reasons.ts";
import type { CallHeaders } from "../transport/transport.ts";
import type { CallFailure } from "./call-failure.ts";

const durations = metered((meter) =>
  meter.createHistogram("watch_fanout_client_call_duration_seconds", {
    unit: "s",
    description: "Duration of calls with all attempts.",
    advice: {
      explicitBucketBoundaries: [
        0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
      ],
    },
  }),
);

const retries = counter("watch_fanout_client_retries", {
  unit: "{attempt}",
  description: "Attempts after the first, by the reason that the previous one failed with.",
});

const hedgedReads = counter("watch_fanout_client_hedged_reads", {
  unit: "{read}",
  description: "Reads that were also sent to another server.",
});

const interruptions = counter("watch_fanout_client_watch_interruptions", {
  unit: "{stream}",
  description: "Watch streams that the server or the network ended.",
});

const openWatches = metered((meter) =>
  meter.createUpDownCounter("watch_fanout_client_open_watches", {
    unit: "{stream}",
    description: "Open watch streams.",
  }),
);

/** The span and the duration metric of one unary call. */
export class CallTelemetry {
  readonly #clock: Clock;
  readonly #method: string;
  readonly #span: Span;
  readonly #start: number;

  /** `path` as in gRPC: `/package.Service/Method`. */
  constructor(clock: Clock, path: string) {
    const name = path.slice(1);
    this.#clock = clock;
    this.#method = name.slice(name.indexOf("/") + 1);
    this.#start = clock.now();
    this.#span = trace.getTracer("watch-fanout").startSpan(name, {
      kind: SpanKind.CLIENT,
      attributes: rpcAttributes(name),
    });
  }

  /** Records an attempt. `before` is the failure of the previous one; undefined for the first. */
  attempt(address: string, before: CallFailure | undefined): void {
    if (this.#span.isRecording()) this.#span.setAttributes(addressAttributes(address));
    if (before === undefined) return;
    const { reason } = before.error;
    this.#span.addEvent("retry", { reason });
    retries.add(1, { method: this.#method, reason });
  }

  /** Records that the read is also sent to another server. */
  hedged(address: string): void {
    this.#span.addEvent("hedge", addressAttributes(address));
    hedgedReads.add(1, { method: this.#method });
  }

  /** The headers of an attempt with the trace of the call: a copy, unless no tracing is set up. */
  traced(headers: CallHeaders): CallHeaders {
    if (!isSpanContextValid(this.#span.spanContext())) return headers;
    const traced = new Map(Object.entries(headers));
    injectSpan(this.#span, traced);
    return Object.fromEntries(traced);
  }

  responded(): void {
    if (this.#span.isRecording()) {
      this.#span.setAttributes(statusAttributes(codes.OK, false));
    }
    this.#end({ method: this.#method, outcome: "OK" });
  }

  failed(error: unknown): void {
    const outcome = error instanceof WatchFanoutError ? error.reason : "CANCELLED";
    if (this.#span.isRecording()) {
      const code =
        error instanceof WatchFanoutError ? wireForms[error.reason].code : codes.CANCELLED;
      this.#span.setAttributes({ ...statusAttributes(code, true), "error.type": outcome });
    }
    // The texts of errors are left out, since they may have keys.
    this.#span.setStatus({ code: SpanStatusCode.ERROR });
    this.#end({ method: this.#method, outcome });
  }

  #end(attributes: Attributes): void {
    durations().record((this.#clock.now() - this.#start) / 1_000, attributes);
    this.#span.end();
  }
}

/** Counts an open stream. The returned function ends it, with the reason; undefined if the client left it. */
export function watchOpened(address: string): (failure: CallFailure | undefined) => void {
  openWatches().add(1, { address });
  return (failure) => {
    openWatches().add(-1, { address });
    if (failure !== undefined) interruptions.add(1, { reason: failure.error.reason });
  };
}

/**
 * Creates an instrument at the global meter provider that is current when it is used, since applications may set up
 * theirs before or after they import this module. Without a meter provider it does nothing.
 */
export function metered<Instrument>(create: (meter: Meter) => Instrument): () => Instrument {
  let made: { readonly provider: MeterProvider; readonly instrument: Instrument } | undefined;
  return () => {
    const provider = metrics.getMeterProvider();
    if (made?.provider !== provider) {
      made = { provider, instrument: create(provider.getMeter("watch-fanout")) };
    }
    return made.instrument;
  };
}

/** A counter that is created in the same way. */
export function counter(
  name: string,
  options: { readonly unit: string; readonly description: string },
): { add(count: number, attributes: Attributes): void } {
  const instrument = metered((meter) => meter.createCounter(name, options));
  return { add: (count, attributes) => instrument().add(count, attributes) };
}
