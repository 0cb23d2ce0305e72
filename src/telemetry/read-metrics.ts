import type { Meter } from "@opentelemetry/api";
import type { UpstreamStats } from "../cacher/freshness/upstream-limiter.ts";

/** Runs the scans of lists and initial states. */
interface ScanSource {
  /** Number of scans that have not finished. */
  readonly size: number;
  /** Number of scans that were refused. */
  readonly refused: number;
}

/** Bounds the reads of the store. */
interface UpstreamSource {
  stats(): UpstreamStats;
}

/** Registers what the reads of all resources wait for: a time slice to scan, and the store. */
export function registerReadMetrics(
  meter: Meter,
  scans: ScanSource,
  upstream: UpstreamSource,
): void {
  const gauge = (name: string, unit: string, description: string, read: () => number): void =>
    meter
      .createObservableGauge(name, { unit, description })
      .addCallback((result) => result.observe(read()));
  const counter = (name: string, unit: string, description: string, read: () => number): void =>
    meter
      .createObservableCounter(name, { unit, description })
      .addCallback((result) => result.observe(read()));
  gauge(
    "watch_fanout_scans",
    "{scan}",
    "Scans for lists, initial states and historical snapshots that run or wait for a time slice.",
    () => scans.size,
  );
  counter(
    "watch_fanout_scans_refused",
    "{scan}",
    "Scans refused because too many waited.",
    () => scans.refused,
  );
  gauge(
    "watch_fanout_upstream_reads",
    "{read}",
    "Gets and pages of lists in progress at the store.",
    () => upstream.stats().inFlight,
  );
  gauge(
    "watch_fanout_upstream_reads_queued",
    "{read}",
    "Gets and pages of lists that wait to be sent to the store.",
    () => upstream.stats().queued,
  );
  counter(
    "watch_fanout_upstream_reads_refused",
    "{read}",
    "Gets and pages of lists refused because too many waited for the store.",
    () => upstream.stats().refused,
  );
}
