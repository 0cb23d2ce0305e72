import { constants, PerformanceObserver } from "node:perf_hooks";
import type { Meter } from "@opentelemetry/api";

/** In seconds: from a minor collection to a major one that holds up every client. */
const durationBoundaries = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** The kinds of collections, named as in OpenTelemetry's conventions for V8. */
export const collectionKinds = ["minor", "major", "incremental", "weakcb"] as const;

type CollectionKind = (typeof collectionKinds)[number];

/** By the number that Node.js has for each. */
const kinds: Readonly<Record<number, CollectionKind>> = {
  [constants.NODE_PERFORMANCE_GC_MINOR]: "minor",
  [constants.NODE_PERFORMANCE_GC_MAJOR]: "major",
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL]: "incremental",
  [constants.NODE_PERFORMANCE_GC_WEAKCB]: "weakcb",
};

/** Records a garbage collection and its duration, in milliseconds. */
type RecordCollection = (kind: CollectionKind, durationMs: number) => void;

/** Registers the durations of garbage collections. */
export function registerGcMetrics(meter: Meter): RecordCollection {
  const duration = meter.createHistogram("watch_fanout_gc_duration_seconds", {
    unit: "s",
    description:
      "Duration of garbage collections, which stop the event loop, by kind: of young objects (minor), of all (major), " +
      "a step of marking all (incremental), and callbacks of objects that are gone (weakcb).",
    advice: { explicitBucketBoundaries: durationBoundaries },
  });
  return (kind, durationMs) => duration.record(durationMs / 1_000, { kind });
}

/** Records each collection of this process. Returns what stops it. */
export function observeCollections(record: RecordCollection): () => void {
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const detail: unknown = Reflect.get(entry, "detail");
      const kind = kinds[Number(Reflect.get(Object(detail), "kind"))];
      if (kind !== undefined) record(kind, entry.duration);
    }
  });
  observer.observe({ entryTypes: ["gc"] });
  return () => observer.disconnect();
}
