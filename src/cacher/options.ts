import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import type { WatchFanoutError } from "../base/errors.ts";
import type { Turns } from "../base/turns.ts";
import type { StateKeeper } from "../cache-files/kept-state.ts";
import type { AttributeReader } from "../codec/attribute-reader.ts";
import { BackfillQueue } from "../reflector/backfill/window-backfill.ts";
import type { Storage } from "../storage/storage.ts";
import type { DeepReads } from "./catch-up/deep-reads.ts";
import type { WatcherBounds } from "./dispatch/watcher-bounds.ts";
import type { UpstreamLimiter } from "./freshness/upstream-limiter.ts";
import type { StageObserver } from "./state/component.ts";
import type { EventWindowBounds } from "./state/event-window.ts";

export type { StageObserver } from "./state/component.ts";
export { BackfillQueue };

export interface CacherOptions {
  /** The storage to cache. The Cacher owns it from then on, and closes it. */
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The resource's name, for messages and log lines. */
  readonly name: string;
  /**
   * Whether the cache has raw keys, if the storage does (`Storage.withRawKeys`). Lists and gets leave them out, watches
   * unless they ask for them. Default false.
   *
   * @internal
   */
  readonly rawKeys?: boolean | undefined;
  readonly eventWindow?: Partial<EventWindowBounds> | undefined;
  /**
   * Shared by all Cachers over one store, so that they backfill their event windows one chunk at a time, round-robin.
   * Default: one for this Cacher.
   *
   * @internal
   */
  readonly backfillQueue?: BackfillQueue | undefined;
  readonly watchers?: Partial<WatcherBounds> | undefined;
  /** Observes how long events take through the cache. Default: nothing is observed. */
  readonly stages?: StageObserver | undefined;
  /** Reads the labels and fields of objects. Default: objects without labels and fields. */
  readonly attributes?: AttributeReader | undefined;
  /** The fields that objects and watchers are indexed by. `attributes` has to declare them. Default: no field. */
  readonly indexes?: readonly string[] | undefined;
  /**
   * Average interval at which the cache is compared with the storage, in milliseconds. Default 10 minutes;
   * 0: never.
   */
  readonly consistencyIntervalMs?: number | undefined;
  /**
   * Whether the cache must not be served any more after a failure to list or watch the storage, until it is listed again:
   * the right to it was lost. Its watches end with the error. Default: the cache is served while the storage fails.
   *
   * @internal
   */
  readonly mayNotServeAfter?: ((error: WatchFanoutError) => boolean) | undefined;
  /**
   * Runs scans in time slices; shared by all caches of a process. Default: one for this Cacher.
   *
   * @internal
   */
  readonly scheduler?: Turns | undefined;
  /**
   * Bounds the reads that only the storage can serve; shared by all caches of a process. Default: one for this
   * Cacher.
   *
   * @internal
   */
  readonly upstreamLimiter?: UpstreamLimiter | undefined;
  /**
   * Bounds the watches that read the storage because they resume from before the event window; shared by all caches of a
   * process. Default: one for this Cacher.
   *
   * @internal
   */
  readonly deepReads?: DeepReads | undefined;
  /**
   * Keeps the state on disk, so that a later Cacher starts with it, and does not list the storage if that still has what
   * follows. The Cacher owns it from then on, and closes it. Default: nothing is kept.
   *
   * @internal
   */
  readonly keeper?: StateKeeper | undefined;
  /**
   * Returns the time of day, in milliseconds since the epoch, for the age of a kept state. Default: Date.now.
   *
   * @internal
   */
  readonly timeOfDay?: (() => number) | undefined;
  /** Returns numbers from 0 up to 1, for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}
