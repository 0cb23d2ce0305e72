import type { Clock } from "../../base/clock.ts";
import type { Turns } from "../../base/turns.ts";
import { Cacher } from "../../cacher/cacher.ts";
import { DeepReads } from "../../cacher/catch-up/deep-reads.ts";
import { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import { BackfillQueue, type StageObserver } from "../../cacher/options.ts";
import { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import { isRightLost } from "../../client/remote/relayed-calls.ts";
import { AttributeReader } from "../../codec/attribute-reader.ts";
import type { Config, ResourceConfig } from "../../config/config.ts";
import { UnsupportedEtcdError } from "../../etcd/client/errors.ts";
import type { EtcdClient } from "../../etcd/client/etcd-client.ts";
import { OwnKeys } from "../../etcd/client/own-keys.ts";
import { Namespace } from "../../etcd/wire/namespace.ts";
import type { CachedResource } from "../../etcd-api/cached/cached-resources.ts";
import { ServedStore } from "../../etcd-server/protocol/served-store.ts";
import type { EtcdKeys } from "../../server/calls/service-options.ts";
import type { ServedResource } from "../../server/server.ts";
import { UncachedResource } from "../../server/services/uncached-resource.ts";
import { EtcdStorage } from "../../storage/etcd/etcd-storage.ts";
import { EtcdStore } from "../../storage/etcd/etcd-store.ts";
import { MemoryStorage } from "../../storage/memory/memory-storage.ts";
import type { MemoryStore } from "../../storage/memory/memory-store.ts";
import type { Storage } from "../../storage/storage.ts";
import type { Store } from "../../storage/store.ts";
import type { CacheFolder } from "./cache-folder.ts";
import { openEtcd } from "./etcd-connections.ts";
import type { ProcessContext } from "./process-context.ts";
import type { Relay } from "./relay.ts";
import { StartError } from "./start-error.ts";

/**
 * Minimum time between two deliveries of a main process to its workers, in milliseconds. Under load several revisions are
 * one message then, whose cost for each worker is that of one. An event after a pause is not delayed. Workers apply
 * `--dispatch-interval` themselves.
 */
const toWorkersIntervalMs = 2;

/** What the resources of a process share. */
interface ResourcesDeps {
  readonly context: ProcessContext;
  readonly scheduler: Turns;
  readonly upstreamLimiter: UpstreamLimiter;
  readonly deepReads: DeepReads;
  /** Returns what observes the latencies of a resource. */
  readonly stagesOf: (resource: string) => StageObserver;
  /** The embedded store, which is closed with the resources; undefined: they are those of etcd, or of an upstream. */
  readonly embedded: MemoryStore | undefined;
  /** The connection of a relay to its upstream; undefined: the service is not a relay. */
  readonly relay: Relay | undefined;
  /** Where the caches are kept. Undefined: they are not. */
  readonly folder: CacheFolder | undefined;
}

/** The resources of a process by name, each with its storage: etcd below a prefix, an embedded store, or the upstream. */
export class ProcessResources {
  /** All of them. */
  readonly served = new Map<string, ServedResource>();
  /** Those that are cached. */
  readonly caches = new Map<string, Cacher>();
  /** How their labels and fields are read. */
  readonly readers = new Map<string, AttributeReader>();
  /** Those whose storage is etcd. */
  readonly ofEtcd = new Map<string, EtcdStorage>();
  readonly #config: Config;
  /** etcd, as the storages use it. Undefined: they do not. */
  readonly etcd: EtcdClient | undefined;
  /** What the resources share: transactions over them, and leases. */
  readonly store: Store;
  readonly #memory: MemoryStore | undefined;
  /** The embedded store, for etcd's API. Undefined: the resources are those of etcd, or of an upstream. */
  readonly embedded: ServedStore | undefined;
  readonly #closing: (() => Promise<void>)[] = [];

  /** Starts no cache, and sends nothing to etcd or to the upstream of a relay. */
  constructor(config: Config, deps: ResourcesDeps) {
    const { context } = deps;
    this.#config = config;
    // With etcd's API a relay has one cache for both, filled by the etcd API of the next server.
    const etcd = config.etcd ?? (config.data === undefined ? config.etcdApi?.next : undefined);
    this.etcd = etcd && openEtcd(etcd, config, context);
    const { maxDeletedObjects } = config.limits;
    if (this.etcd !== undefined) {
      const prefixes = new Map(config.resources.map(({ name, prefix }) => [name, prefix]));
      this.store = new EtcdStore(this.etcd, { prefixes, maxDeletedObjects });
    } else if (deps.relay !== undefined) {
      this.store = deps.relay.storeOf(config.resources);
    } else {
      if (deps.embedded === undefined) throw new Error("The embedded store is not open.");
      this.#memory = deps.embedded;
      this.store = this.#memory;
      this.embedded = new ServedStore(this.#memory);
    }
    this.#closing.push(() => this.store.close());
    const backfillQueue = new BackfillQueue();
    for (const resource of config.resources) {
      this.#open(resource, this.#storageOf(resource, deps), backfillQueue, deps);
    }
  }

  /** What the etcd API serves from the caches. */
  cachedResources(): CachedResource[] {
    const isNamespaced = this.#config.etcdApi?.namespace !== undefined;
    const innerKey = this.#inNamespace(this.#historyKey);
    const own = innerKey && new OwnKeys(innerKey);
    const embedded = this.embedded && confirmedBy(this.embedded);
    return this.#config.resources.flatMap(({ name, prefix }) => {
      const [cacher, storage] = [this.caches.get(name), this.ofEtcd.get(name) ?? embedded];
      const inner = this.#inNamespace(Buffer.from(prefix));
      if (cacher === undefined || storage === undefined || inner === undefined) return [];
      return [{ name, keys: { prefix: inner, own, isNamespaced }, cacher, storage }];
    });
  }

  /** The keys in the etcd API of those whose storage is etcd or the embedded store, by name. */
  etcdKeys(): ReadonlyMap<string, EtcdKeys> {
    const key = this.#historyKey;
    // One outside of the namespace can't be read by the etcd API: to relays it is a key that does not exist.
    const historyKey = (this.#inNamespace(key) ?? key).toString();
    const ofEtcd = this.#config.resources.flatMap(({ name, prefix }): [string, EtcdKeys][] => {
      const isInEtcdApi = this.ofEtcd.has(name) || this.#memory !== undefined;
      const inner = isInEtcdApi ? this.#inNamespace(Buffer.from(prefix)) : undefined;
      return inner === undefined ? [] : [[name, { prefix: inner.toString(), historyKey }]];
    });
    return new Map(ofEtcd);
  }

  /** Rejects with a StartError if etcd is unsupported. An unreachable etcd is not an error. */
  async check(): Promise<void> {
    // Without resources every call is relayed, whatever the version. A member that was removed from its cluster would
    // crash at the question.
    if (this.ofEtcd.size === 0) return;
    try {
      await this.etcd?.checkVersions();
    } catch (error) {
      if (!(error instanceof UnsupportedEtcdError)) throw error;
      const way =
        "Without caches etcd's API is served also for this version: etcd-proxy --cache=false.";
      const hasWay = this.#config.etcdApi !== undefined;
      const message = `--etcd: ${error.message}${hasWay ? ` ${way}` : ""}`;
      throw new StartError(message, { cause: error });
    }
  }

  /** Closes them in reverse order, and then what their storages share. */
  async close(): Promise<void> {
    for (const close of this.#closing.splice(0).reverse()) await close();
    await this.etcd?.close();
  }

  /** The key with the id of the history. */
  get #historyKey(): Buffer {
    return Buffer.from((this.#config.etcd ?? this.#config.etcdApi?.next)?.historyKey ?? "");
  }

  /** A key or prefix as the etcd API names it; undefined: it is not in its namespace. */
  #inNamespace(key: Buffer): Buffer | undefined {
    const namespace = this.#config.etcdApi?.namespace;
    return namespace === undefined ? key : new Namespace(Buffer.from(namespace)).inner(key);
  }

  #storageOf(resource: ResourceConfig, { context, relay }: ResourcesDeps): Storage {
    const { logger } = context;
    const { name, prefix } = resource;
    if (this.#memory !== undefined)
      return new MemoryStorage({ store: this.#memory, resource: name, prefix });
    if (this.etcd === undefined) {
      if (relay !== undefined) return relay.storageOf(resource);
      throw new Error("There is neither etcd, nor a server to follow, nor an embedded store.");
    }
    const named = logger.child({ resource: name });
    const followed = relay?.followedBy(resource);
    const storage = new EtcdStorage(this.etcd, { prefix, logger: named, followed });
    this.ofEtcd.set(name, storage);
    return storage;
  }

  #open(
    resource: ResourceConfig,
    storage: Storage,
    backfillQueue: BackfillQueue,
    { context, scheduler, upstreamLimiter, deepReads, stagesOf, folder }: ResourcesDeps,
  ): void {
    const { name, codec, indexes, eventWindow, cache } = resource;
    const { clock, logger } = context;
    const { workers, dispatchIntervalMs, stallTimeoutMs, consistencyIntervalMs, etcdApi } =
      this.#config;
    const attributes = new AttributeReader(codec, clock, logger.child({ resource: name }));
    this.readers.set(name, attributes);
    if (!cache) {
      const objectAttributes = new ObjectAttributes(attributes);
      const reads = { limiter: upstreamLimiter, scheduler };
      this.served.set(name, new UncachedResource(name, storage, objectAttributes, reads));
      this.#closing.push(() => storage.close());
      return;
    }
    const cacher = new Cacher({
      ...{ storage, clock, logger, name, attributes, indexes, eventWindow, backfillQueue },
      // etcd's clients get all keys, also those that are not UTF-8.
      rawKeys: etcdApi !== undefined,
      watchers: {
        stallTimeoutMs,
        dispatchIntervalMs: workers === 1 ? dispatchIntervalMs : toWorkersIntervalMs,
      },
      stages: stagesOf(name),
      keeper: folder?.keeperOf(resource, storage),
      mayNotServeAfter: isRightLost,
      ...{ consistencyIntervalMs, scheduler, upstreamLimiter, deepReads },
    });
    this.caches.set(name, cacher);
    this.served.set(name, cacher);
    this.#closing.push(() => cacher.close());
  }
}

/** What the etcd API asks of the embedded store before a cache answers in its place. */
function confirmedBy(served: ServedStore): CachedResource["storage"] {
  const isAvailable = (revision: number): boolean => revision >= served.compacted;
  return {
    get: ({ key, at }) => served.store.get(key, at),
    isAvailable: async (revision) => isAvailable(revision),
    currentRevisionWith: async (revision) => (isAvailable(revision) ? served.revision : undefined),
  };
}

/** What bounds the deep reads of this process. To a main process each worker is one caller, and bounds its own callers. */
export function deepReadsOf({ deepReads, workers }: Config, clock: Clock): DeepReads {
  const ofMain = { ...deepReads, concurrentPerGroup: deepReads.concurrent };
  return new DeepReads(clock, workers > 1 ? ofMain : deepReads);
}

/** What bounds the reads of etcd. Each worker bounds the histories of its callers; here it has one connection for all. */
export function upstreamLimiterOf({ workers }: Config, clock: Clock): UpstreamLimiter {
  const unbounded = { concurrentPerGroup: Infinity, concurrentPerOwner: Infinity };
  return new UpstreamLimiter(clock, {}, workers > 1 ? unbounded : {});
}
