import { join } from "node:path";
import type { StateIdentity } from "../../cache-files/blocks.ts";
import { Budget } from "../../cache-files/budget.ts";
import type { KeeperLimits } from "../../cache-files/keeper-options.ts";
import type { StateKeeper } from "../../cache-files/kept-state.ts";
import { FileStateKeeper } from "../../cache-files/state-keeper.ts";
import { userOf } from "../../cache-files/user-of.ts";
import type { Config, ResourceConfig, UpstreamConfig } from "../../config/config.ts";
import type { Storage } from "../../storage/storage.ts";
import type { ProcessContext } from "./process-context.ts";

/** What all caches of a process may have on disk, and in memory until it is written, in bytes. */
const maxDiskBytes = 64 * 1024 ** 3;
const maxMemoryBytes = 64 * 1024 ** 2;

/** The folder of `--cache-dir`: each cache has a folder of its own in it. */
export class CacheFolder {
  readonly #path: string;
  readonly #config: Config;
  readonly #user: string;
  readonly #context: ProcessContext;
  readonly #limits: KeeperLimits = {
    disk: new Budget(maxDiskBytes),
    memory: new Budget(maxMemoryBytes),
  };

  /** `user`: as the source knows this process. */
  constructor(path: string, config: Config, user: string, context: ProcessContext) {
    this.#path = path;
    this.#config = config;
    this.#user = user;
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
      identity: identityOf(resource, this.#config, this.#user),
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
function identityOf(
  resource: ResourceConfig,
  { etcd, etcdApi, upstream }: Config,
  user: string,
): StateIdentity {
  const { name, upstreamName = name, prefix } = resource;
  const { endpoints = [], historyKey = "" } = etcd ?? etcdApi?.next ?? {};
  return {
    ...{ upstream: addressesOf(upstream), "name there": upstreamName },
    ...{ etcd: [...endpoints].sort().join(), "history key": historyKey },
    ...{ prefix, user },
    // With etcd's API a cache has raw keys, and that of a relay is filled by the etcd API of its upstream.
    "kind of keys": etcdApi === undefined ? "relative" : "raw",
  };
}

function addressesOf(upstream: UpstreamConfig | undefined): string {
  return [...(upstream?.addresses ?? [])].sort().join();
}

/** Names the user that this process is for the source of its caches. */
export function ownUser({ upstream, etcd }: Config): Promise<string> {
  const { tokenFile, tls } = upstream ?? { tokenFile: undefined, tls: etcd?.tls };
  const credentials = {
    username: etcd?.auth?.username,
    token: tokenFile?.content.toString("utf8").trim(),
    certificate: tls?.client?.cert,
  };
  return userOf(credentials, addressesOf(upstream));
}
