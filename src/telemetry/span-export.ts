import type { Context, Meter } from "@opentelemetry/api";
import { type ExportResult, ExportResultCode } from "@opentelemetry/core";
import {
  BatchSpanProcessor,
  type ReadableSpan,
  type Span,
  type SpanExporter,
  type SpanProcessor,
} from "@opentelemetry/sdk-trace";
import { by, counter, registerMetrics } from "../base/metric-table.ts";

/** Numbers of ended spans. */
interface SpanCounts {
  /** Accepted by the collector. */
  readonly exported: number;
  /** Dropped, since too many waited. */
  readonly overflown: number;
  /** Dropped, since the collector did not accept them. */
  readonly failed: number;
}

/** The same, and the number of calls that were not recorded since their callers had too many recorded. */
interface TraceCounts extends SpanCounts {
  readonly refused: number;
}

/** Registers the outcome of the spans. */
export function registerSpanMetrics(meter: Meter, counts: () => TraceCounts): void {
  registerMetrics(meter, () => [[counts()]], {
    watch_fanout_exported_spans: counter(
      "{span}",
      "Spans that the collector has accepted.",
      ({ exported }) => exported,
    ),
    watch_fanout_dropped_spans: counter(
      "{span}",
      "Spans that were not exported: queue_full, export_failed, or client_rate, since clients recorded too many calls.",
      ({ overflown, failed, refused }) =>
        by("reason", { queue_full: overflown, export_failed: failed, client_rate: refused }),
    ),
  });
}

/** Maximum number of ended spans that wait for their export. Later ones are dropped. */
const maxQueuedSpans = 2_048;
/** Maximum number of spans in one request to the collector. */
const maxBatchSpans = 512;
/** How long an ended span waits for others that are exported with it, in milliseconds. */
const batchMs = 1_000;
/** Deadline of an export with its repetitions, in milliseconds. */
export const exportTimeoutMs = 10_000;

/** Called when an export has failed. */
type OnExportFailure = (error: Error | undefined) => void;

/**
 * Exports the spans that have ended: in batches, from a bounded queue, without delay for the calls. Counts the spans that
 * it drops, for lack of room in the queue or because their export failed.
 */
export class SpanExport implements SpanProcessor {
  readonly #batches: BatchSpanProcessor;
  #queued = 0;
  #exported = 0;
  #overflown = 0;
  #failed = 0;

  constructor(exporter: SpanExporter, onFailure: OnExportFailure) {
    this.#batches = new BatchSpanProcessor({
      exporter: this.#counted(exporter, onFailure),
      maxQueueSize: maxQueuedSpans,
      maxExportBatchSize: maxBatchSpans,
      scheduledDelayMillis: batchMs,
      exportTimeoutMillis: exportTimeoutMs,
    });
  }

  /** The outcome of the spans. */
  get counts(): SpanCounts {
    return { exported: this.#exported, overflown: this.#overflown, failed: this.#failed };
  }

  onStart(span: Span, parent: Context): void {
    this.#batches.onStart(span, parent);
  }

  onEnd(span: ReadableSpan): void {
    if (this.#queued >= maxQueuedSpans) {
      this.#overflown++;
      return;
    }
    this.#queued++;
    this.#batches.onEnd(span);
  }

  forceFlush(): Promise<void> {
    return this.#batches.forceFlush();
  }

  shutdown(): Promise<void> {
    return this.#batches.shutdown();
  }

  #counted(exporter: SpanExporter, onFailure: OnExportFailure): SpanExporter {
    return {
      export: (spans, done) => {
        this.#queued -= spans.length;
        exporter.export(spans, (result: ExportResult) => {
          if (result.code === ExportResultCode.SUCCESS) {
            this.#exported += spans.length;
          } else {
            this.#failed += spans.length;
            onFailure(result.error);
          }
          done(result);
        });
      },
      shutdown: () => exporter.shutdown(),
      forceFlush: async () => exporter.forceFlush?.(),
    };
  }
}
