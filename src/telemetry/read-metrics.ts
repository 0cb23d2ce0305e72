import type { Meter } from "@opentelemetry/api";
import type { UpstreamStats } from "../cacher/freshness/upstream-limiter.ts";

/** What does the scans of lists and initial states. */
export interface ScanSource {
  /** How many have not finished. */
  readonly size: number;
  readonly refused: number;
}

/** What bounds the reads of the store. */
export interface UpstreamSource {
  stats(): UpstreamStats;
}

/** Registers what reads of all resources wait for: their turn to scan, and the store. */
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
    "Scans of lists, initial states and past states that are under way or wait for their time slice.",
    () => scans.size,
  );
  counter(
    "watch_fanout_scans_refused",
    "{scan}",
    "Scans that were refused, as there were too many.",
    () => scans.refused,
  );
  gauge(
    "watch_fanout_upstream_reads",
    "{read}",
    "Gets and pages of lists that the store is being asked for.",
    () => upstream.stats().inFlight,
  );
  gauge(
    "watch_fanout_upstream_reads_queued",
    "{read}",
    "Gets and pages of lists that wait to be asked of the store.",
    () => upstream.stats().queued,
  );
  counter(
    "watch_fanout_upstream_reads_refused",
    "{read}",
    "Gets and pages of lists that were refused, as the store had too much to do.",
    () => upstream.stats().refused,
  );
}
