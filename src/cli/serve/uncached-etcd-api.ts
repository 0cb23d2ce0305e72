import type { Config } from "../../config/config.ts";

/** What an operator may not expect of the etcd API, a sentence for the log; undefined: nothing. */
export function uncachedEtcdApi({
  etcdApi,
  resources,
}: Pick<Config, "etcdApi" | "resources">): string | undefined {
  if (etcdApi === undefined || resources.some(({ cache }) => cache)) return undefined;
  return (
    "nothing is cached, so each watch and read of the etcd API is one of etcd; name keys to cache with --resource " +
    "NAME=PREFIX, or all of them with --resource all="
  );
}
