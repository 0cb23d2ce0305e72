import type { Meter } from "@opentelemetry/api";
import type { UpstreamStats } from "../cacher/freshness/upstream-limiter.ts";

/** A storage that skips keys which cannot be objects. */
export interface SkippedKeysSource {
  /** Number of times that a key was skipped. */
  readonly skippedKeys: number;
}

/** Registers the skipped keys of storages, by resource. */
export function registerSkippedKeys(
  meter: Meter,
  storages: ReadonlyMap<string, SkippedKeysSource>,
): void {
  meter
    .createObservableCounter("watch_fanout_skipped_keys", {
      unit: "{key}",
      description:
        "Keys received from etcd that ListWatchService cannot serve: not valid UTF-8, or equal to the prefix.",
    })
    .addCallback((result) => {
      for (const [resource, { skippedKeys }] of storages) result.observe(skippedKeys, { resource });
    });
}

/** Reads the attributes of a resource's objects. */
export interface UndecodableSource {
  /** Number of values that could not be decoded. */
  readonly undecodable: number;
}

/** Registers the values that could not be decoded, by resource, with or without a cache. */
export function registerUndecodableValues(
  meter: Meter,
  readers: ReadonlyMap<string, UndecodableSource>,
): void {
  meter
    .createObservableCounter("watch_fanout_undecodable_values", {
      unit: "{value}",
      description:
        "Values that the resource's codec could not decode; their objects have no labels and no fields.",
    })
    .addCallback((result) => {
      for (const [resource, { undecodable }] of readers) result.observe(undecodable, { resource });
    });
}

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
