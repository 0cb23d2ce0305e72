import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Turns } from "../../base/turns.ts";
import type { ListedState, ReplaceCause } from "../../reflector/reflector.ts";
import type { Storage } from "../../storage/storage.ts";
import type { StateChange } from "./diff.ts";
import type { Readiness } from "./readiness.ts";
import type { WatchCache } from "./watch-cache.ts";

/** What all components of one Cacher share. */
export interface ComponentContext {
  /** The resource's name, for messages and log lines. */
  readonly name: string;
  readonly storage: Storage;
  /** What the cache is filled from: the storage, or the same with raw keys. */
  readonly source: Storage;
  readonly cache: WatchCache;
  /** Whether `cache` may be served from. */
  readonly readiness: Readiness;
  readonly clock: Clock;
  readonly logger: Logger;
  /** Runs reads and initial states in time slices, shared fairly between owners. */
  readonly scheduler: Turns;
  /** Returns numbers from 0 up to 1, for jitter. */
  readonly random: () => number;
  /** Observes how long events take. */
  readonly stages: StageObserver;
}

/** A listed state that replaces the whole cached state. */
export interface Replacement {
  readonly state: ListedState;
  readonly cause: ReplaceCause;
  /** The changes from the cached state to `state`; undefined if they are not known. */
  readonly changes: readonly StateChange[] | undefined;
}

/**
 * A component that follows what the ingest writes into the cache. The ingest calls each method synchronously on
 * all observers, in the order in which they were added, before it calls the next method on any of them.
 *
 * A replacement calls `beforeReplace`, `reset`, `advanced` and `replaced`; a batch calls `advanced` only.
 */
export interface CacheObserver {
  /** The cache still holds the old state. Ends what can't continue from the new one. */
  beforeReplace?(replacement: Replacement): void;
  /** The cache holds the new state. Drops everything derived from the old one, and notifies no reader yet. */
  reset?(replacement: Replacement): void;
  /** The cache has reached `revision`. */
  advanced?(revision: number): void;
  /** All observers are consistent with the new state: readers may be notified, and may call the Cacher. */
  replaced?(): void;
}

/**
 * Observes how long events take to each stage of a Cacher, in milliseconds since they arrived from the storage. Its methods
 * must not throw.
 */
export interface StageObserver {
  /** A batch of events is in the cache. Called for a sample of the batches: all, or about 100 per second. */
  applied?(latencyMs: number): void;
  /** Every live watcher was offered the events of a dispatch round. Called for each round, with its oldest event. */
  dispatched?(latencyMs: number): void;
  /** A live watcher's client reads a batch of events. Called for a sample, as `applied` is. */
  delivered?(latencyMs: number): void;
}
