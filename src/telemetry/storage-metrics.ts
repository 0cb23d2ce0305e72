import type { Meter } from "@opentelemetry/api";

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
