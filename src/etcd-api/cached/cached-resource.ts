import type { Cacher } from "../../cacher/cacher.ts";
import type { CachedKeys } from "./cached-scope.ts";

/** A resource whose keys are served from its cache. */
export interface CachedResource {
  readonly name: string;
  readonly keys: CachedKeys;
  readonly cacher: Cacher;
  /** Whether the cache has all keys below the prefix; otherwise requests for several keys are relayed. */
  readonly hasAllKeys: boolean;
}
