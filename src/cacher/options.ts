import type { Logger } from "pino";
import type { Clock } from "../base/clock.ts";
import type { TimeSliceScheduler } from "../base/time-slices.ts";
import type { AttributeReader } from "../codec/attribute-reader.ts";
import { BackfillQueue } from "../reflector/backfill/backfill-queue.ts";
import type { Storage } from "../storage/storage.ts";
import type { WatcherBounds } from "./dispatch/watcher-bounds.ts";
import type { UpstreamLimiter } from "./freshness/upstream-limiter.ts";
import type { EventWindowBounds } from "./state/event-window.ts";

export { BackfillQueue };

export interface CacherOptions {
  /** What is cached. It is the Cacher's from then on, who closes it. */
  readonly storage: Storage;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The resource's name, for messages. */
  readonly name: string;
  readonly eventWindow?: Partial<EventWindowBounds> | undefined;
  /**
   * Shared by the Cachers over one store, which then fill their event windows by turns. Default: its own.
   *
   * @internal
   */
  readonly backfillQueue?: BackfillQueue | undefined;
  readonly watchers?: Partial<WatcherBounds> | undefined;
  /** Reads labels and fields out of objects. Default: they have none. */
  readonly attributes?: AttributeReader | undefined;
  /** The fields, out of those that `attributes` declares, that objects and watchers are found by. */
  readonly indexes?: readonly string[] | undefined;
  /**
   * How often the cache is compared with the storage, in milliseconds and on average. Default 10
   * minutes; 0: never.
   */
  readonly consistencyIntervalMs?: number | undefined;
  /**
   * Where scans are done: one for all caches of a process. Default: one of its own.
   *
   * @internal
   */
  readonly scheduler?: TimeSliceScheduler | undefined;
  /**
   * Bounds the reads that only the storage answers: one for all of a process. Default: one of its own.
   *
   * @internal
   */
  readonly upstreamLimiter?: UpstreamLimiter | undefined;
  /** Numbers from 0 up to 1. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}
