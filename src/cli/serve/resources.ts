import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Turns } from "../../base/turns.ts";
import type { WatchedFiles } from "../../base/watched-files.ts";
import { Cacher } from "../../cacher/cacher.ts";
import type { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import { BackfillQueue, type StageObserver } from "../../cacher/options.ts";
import { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import { isRightLost } from "../../client/remote/relayed-calls.ts";
import { AttributeReader } from "../../codec/attribute-reader.ts";
import type { Config, EtcdConfig } from "../../config/config.ts";
import { UnsupportedEtcdError } from "../../etcd/client/errors.ts";
import { EtcdClient } from "../../etcd/client/etcd-client.ts";
import type { CachedResource } from "../../etcd-api/cached/cached-resources.ts";
import type { ServedResource } from "../../server/server.ts";
import { UncachedResource } from "../../server/services/uncached-resource.ts";
import { EtcdStorage } from "../../storage/etcd/etcd-storage.ts";
import { defaultStateBytes } from "../../storage/memory/memory-estimates.ts";
import { MemoryStorage } from "../../storage/memory/memory-storage.ts";
import type { Storage } from "../../storage/storage.ts";
import type { SkippedKeysSource } from "../../telemetry/storage-metrics.ts";
import { watchClientCertificates } from "./certificates.ts";
import type { Relay } from "./relay.ts";
import { StartError } from "./start-error.ts";

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
  readonly scheduler: Turns;
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

/** The storages of the resources. */
export interface Storages {
  /** By the resource's name. Throws if there is no such resource. */
  of(resource: string): Storage;
  /** Storages that skip keys, by resource. */
  readonly skippingKeys: ReadonlyMap<string, SkippedKeysSource>;
  /** What the etcd API serves from these caches, by resource. */
  cachedResources(caches: ReadonlyMap<string, Cacher>): CachedResource[];
  /** Rejects with a StartError if etcd is unsupported. An unreachable etcd is not an error. */
  check(): Promise<void>;
  /** Closes what the storages share. The user of each storage closes it. */
  close(): Promise<void>;
}

/** What storages are opened with. */
interface StorageDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  /** Watches the certificates for etcd. */
  readonly files: WatchedFiles;
  /** The connection of a relay to its upstream; undefined: the service is not a relay. */
  readonly relay: Relay | undefined;
}

/** Opens the storage of every resource, without a request to etcd or to the upstream of a relay. */
export function openStorages(
  config: Config,
  { clock, logger, files, relay }: StorageDeps,
): Storages {
  if (relay !== undefined) return relayed(config, relay);
  return config.etcd === undefined
    ? embedded(config, clock)
    : etcd(config.etcd, config, clock, logger, files);
}

/** Each resource has its own embedded store with its own revisions, so prefixes have no effect. */
function embedded({ resources }: Config, clock: Clock): Storages {
  const maxStateBytes = defaultStateBytes(resources.length);
  const storages = new Map(
    resources.map(({ name }) => [name, new MemoryStorage({ clock, maxStateBytes })]),
  );
  return {
    of: (resource) => known(storages, resource),
    skippingKeys: new Map(),
    cachedResources: () => [],
    check: async () => {},
    close: async () => {},
  };
}

function relayed({ resources }: Config, relay: Relay): Storages {
  const storages = new Map(resources.map((resource) => [resource.name, relay.storageOf(resource)]));
  return {
    of: (resource) => known(storages, resource),
    skippingKeys: new Map(),
    cachedResources: () => [],
    check: async () => {},
    close: async () => {},
  };
}

function etcd(
  options: EtcdConfig,
  { resources, etcdApi }: Config,
  clock: Clock,
  logger: Logger,
  files: WatchedFiles,
): Storages {
  const client = new EtcdClient({ ...options, clock, logger });
  if (options.tls !== undefined) watchClientCertificates(files, "etcd", options.tls, client);
  const storages = new Map(
    resources.map(({ name, prefix }) => [
      name,
      new EtcdStorage(client, { prefix, logger: logger.child({ resource: name }) }),
    ]),
  );
  return {
    of: (resource) => known(storages, resource),
    skippingKeys: storages,
    cachedResources: (caches) =>
      resources.flatMap(({ name, prefix }) => {
        const cacher = caches.get(name);
        const keys = { prefix: Buffer.from(prefix), marker: client.history.key };
        if (cacher === undefined) return [];
        return [{ name, keys, cacher, storage: known(storages, name) }];
      }),
    check: async () => {
      // Without resources every call is relayed, whatever the version. A member that was removed from its cluster would
      // crash at the question.
      if (storages.size === 0) return;
      try {
        await client.checkVersions();
      } catch (error) {
        if (!(error instanceof UnsupportedEtcdError)) throw error;
        const way =
          "Without caches etcd's API is served also for this version: etcd-proxy --cache=false.";
        const message = `--etcd: ${error.message}${etcdApi === undefined ? "" : ` ${way}`}`;
        throw new StartError(message, { cause: error });
      }
    },
    close: () => client.close(),
  };
}

function known<S extends Storage>(storages: ReadonlyMap<string, S>, resource: string): S {
  const storage = storages.get(resource);
  if (storage === undefined) throw new Error(`There is no storage for ${resource}.`);
  return storage;
}
