import type { Cacher } from "../../cacher/cacher.ts";
import type { EtcdStorage } from "../../storage/etcd/etcd-storage.ts";
import type { CachedKeys } from "./cached-scope.ts";

/** A resource whose keys are served from its cache. */
export interface CachedResource {
  readonly name: string;
  readonly keys: CachedKeys;
  /** Has raw keys as well. */
  readonly cacher: Cacher;
  /** etcd, as this process reads it. */
  readonly storage: Pick<EtcdStorage, "get" | "isAvailable" | "currentRevisionWith">;
}
