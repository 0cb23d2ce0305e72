import { join } from "node:path";
import { Budget } from "../../cache-files/budget.ts";
import type { KeeperLimits } from "../../cache-files/keeper-options.ts";
import type { StateKeeper } from "../../cache-files/kept-state.ts";
import { FileStateKeeper } from "../../cache-files/state-keeper.ts";
import type { Config, ResourceConfig } from "../../config/config.ts";
import type { Storage } from "../../storage/storage.ts";
import type { ProcessContext } from "./process-context.ts";

/** What all caches of a process may have on disk, and in memory until it is written, in bytes. */
const maxDiskBytes = 64 * 1024 ** 3;
const maxMemoryBytes = 64 * 1024 ** 2;

/** The folder of `--cache-dir`: each cache has a folder of its own in it. */
export class CacheFolder {
  readonly #path: string;
  readonly #config: Config;
  readonly #context: ProcessContext;
  readonly #limits: KeeperLimits = {
    disk: new Budget(maxDiskBytes),
    memory: new Budget(maxMemoryBytes),
  };

  constructor(path: string, config: Config, context: ProcessContext) {
    this.#path = path;
    this.#config = config;
    this.#context = context;
  }

  /** Keeps the cache of a resource, which is filled from `source`. */
  keeperOf(resource: ResourceConfig, source: Pick<Storage, "staleForMs">): StateKeeper {
    const { clock, logger } = this.#context;
    const { name, eventWindow } = resource;
    const { maxBytes: windowBytes, maxEvents } = eventWindow;
    return new FileStateKeeper({
      folder: join(this.#path, name),
      name,
      identity: identityOf(resource, this.#config),
      ...{ clock, logger: logger.child({ resource: name }), windowBytes, maxEvents },
      limits: this.#limits,
      // What comes from a server that has lost its own source is as old as it says.
      now: () => Date.now() - (source.staleForMs ?? 0),
    });
  }
}

/**
 * The source of a cache, and all that decides which objects it has. Codecs and indexes do not: what they read from values is
 * not kept.
 */
function identityOf(resource: ResourceConfig, { etcd, etcdApi, upstream }: Config): string {
  const { name, upstreamName = name, prefix } = resource;
  const followed = upstream === undefined ? [] : [...upstream.addresses].sort();
  const { endpoints = [], historyKey } = etcd ?? etcdApi?.next ?? {};
  // With etcd's API a cache has raw keys, and that of a relay is filled by the etcd API of its upstream.
  return JSON.stringify({
    ...{ followed, upstreamName, endpoints: [...endpoints].sort(), historyKey, prefix },
    rawKeys: etcdApi !== undefined,
  });
}
