import type { Meter } from "@opentelemetry/api";
import { by, byEach, counter, gauge, registerMetrics } from "../base/metric-table.ts";
import { type DeepReadStats, deepReadLimits } from "../cacher/catch-up/deep-reads.ts";
import type { UpstreamStats } from "../cacher/freshness/upstream-limiter.ts";

/** Registers how often storages have skipped a key that can't be an object, by resource. */
export function registerSkippedKeys(
  meter: Meter,
  storages: ReadonlyMap<string, { readonly skippedKeys: number }>,
): void {
  registerMetrics(meter, () => byResource(storages), {
    watch_fanout_skipped_keys: counter(
      "{key}",
      "Keys that ListWatchService cannot serve: not UTF-8, or equal to the prefix.",
      ({ skippedKeys }) => skippedKeys,
    ),
  });
}

/** Registers the number of values that could not be decoded, by resource, with or without a cache. */
export function registerUndecodableValues(
  meter: Meter,
  readers: ReadonlyMap<string, { readonly undecodable: number }>,
): void {
  registerMetrics(meter, () => byResource(readers), {
    watch_fanout_undecodable_values: counter(
      "{value}",
      "Values that the resource's codec could not decode.",
      ({ undecodable }) => undecodable,
    ),
  });
}

function byResource<Source>(sources: ReadonlyMap<string, Source>) {
  return Array.from(sources, ([resource, source]) => [source, { resource }] as const);
}

/** Registers what the reads of all resources wait for: a time slice to scan, and the store. */
export function registerReadMetrics(
  meter: Meter,
  scans: { readonly size: number; readonly refused: number },
  upstream: { stats(): UpstreamStats },
): void {
  registerMetrics(meter, () => [[scans]], {
    watch_fanout_scans: gauge(
      "{scan}",
      "Scans for lists and initial states that run or wait for a time slice.",
      ({ size }) => size,
    ),
    watch_fanout_scans_refused: counter(
      "{scan}",
      "Scans refused because too many waited.",
      ({ refused }) => refused,
    ),
  });
  registerMetrics(meter, () => [[upstream.stats()]], {
    watch_fanout_upstream_reads: gauge(
      "{read}",
      "Gets and pages of lists in progress at the store.",
      ({ inFlight }) => inFlight,
    ),
    watch_fanout_upstream_reads_queued: gauge(
      "{read}",
      "Gets and pages of lists that wait for the store.",
      ({ queued }) => queued,
    ),
    watch_fanout_upstream_reads_refused: counter(
      "{read}",
      "Gets and pages of lists refused because too many waited.",
      ({ refused }) => refused,
    ),
  });
}

/** Registers the watches of all resources that read events from before the event window. */
export function registerDeepReads(meter: Meter, deepReads: { stats(): DeepReadStats }): void {
  registerMetrics(meter, () => [[deepReads.stats()]], {
    watch_fanout_deep_reads: gauge(
      "{watch}",
      "Watches that read events from before the event window.",
      ({ active, waiting }) => by("state", { active, waiting }),
    ),
    watch_fanout_deep_reads_begun: counter(
      "{watch}",
      "Watches that began to read events from before the event window.",
      ({ begun }) => begun,
    ),
    watch_fanout_deep_reads_refused: counter(
      "{watch}",
      "Watches refused or ended with RESUME_LIMITED, by limit: concurrent, per_identity, time.",
      ({ refused }) => byEach("limit", deepReadLimits, (limit) => [limit, refused.get(limit) ?? 0]),
    ),
  });
}
