import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { TimeSliceScheduler } from "../../base/time-slices.ts";
import { Cacher } from "../../cacher/cacher.ts";
import type { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import { BackfillQueue, type StageObserver } from "../../cacher/options.ts";
import { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import { isRightLost } from "../../client/remote/relayed-calls.ts";
import { AttributeReader } from "../../codec/attribute-reader.ts";
import type { Config } from "../../config/config.ts";
import type { ServedResource } from "../../server/server.ts";
import { UncachedResource } from "../../server/services/uncached-resource.ts";
import type { Storages } from "./storages.ts";

/**
 * Minimum time between two deliveries of a main process to its workers, in milliseconds. Under load several revisions are
 * one message then, whose cost for each worker is that of one. An event after a pause is not delayed. Workers apply
 * `--dispatch-interval` themselves.
 */
const toWorkersIntervalMs = 2;

/** What caches are made of, besides their configuration. */
interface CacheDeps {
  readonly storages: Storages;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly scheduler: TimeSliceScheduler;
  readonly upstreamLimiter: UpstreamLimiter;
  /** Returns what observes the latencies of a resource. */
  readonly stagesOf: (resource: string) => StageObserver;
  /** Is given what closes each resource. */
  readonly onOpened: (close: () => Promise<void>) => void;
}

/** The resources of a service, by name. */
interface OpenResources {
  /** All of them. */
  readonly served: ReadonlyMap<string, ServedResource>;
  /** How their labels and fields are read. */
  readonly readers: ReadonlyMap<string, AttributeReader>;
}

/**
 * Opens the resources of the configuration, and adds those with a cache to `caches`. The caches are not started, and
 * nothing is sent.
 */
export function openResources(
  config: Config,
  caches: Map<string, Cacher>,
  { storages, clock, logger, scheduler, upstreamLimiter, stagesOf, onOpened }: CacheDeps,
): OpenResources {
  const backfillQueue = new BackfillQueue();
  const served = new Map<string, ServedResource>();
  const readers = new Map<string, AttributeReader>();
  for (const { name, codec, indexes, eventWindow, cache } of config.resources) {
    const storage = storages.of(name);
    const attributes = new AttributeReader(codec, clock, logger.child({ resource: name }));
    readers.set(name, attributes);
    if (!cache) {
      const objectAttributes = new ObjectAttributes(attributes);
      const reads = { limiter: upstreamLimiter, scheduler };
      served.set(name, new UncachedResource(name, storage, objectAttributes, reads));
      onOpened(() => storage.close());
      continue;
    }
    const cacher = new Cacher({
      ...{ storage, clock, logger, name, attributes, indexes, eventWindow, backfillQueue },
      // etcd's clients get all keys, also those that are not UTF-8.
      rawKeys: config.etcdApi !== undefined,
      watchers: {
        stallTimeoutMs: config.stallTimeoutMs,
        dispatchIntervalMs: config.workers === 1 ? config.dispatchIntervalMs : toWorkersIntervalMs,
      },
      stages: stagesOf(name),
      consistencyIntervalMs: config.consistencyIntervalMs,
      mayNotServeAfter: isRightLost,
      ...{ scheduler, upstreamLimiter },
    });
    caches.set(name, cacher);
    served.set(name, cacher);
    onOpened(() => cacher.close());
  }
  return { served, readers };
}
