import type { Config } from "../../config/config.ts";
import { isLocalHost } from "../../identity/peer.ts";

/** What an operator may not expect of the configuration, for the log: a sentence each. */
export function startUpWarnings(config: Config): readonly string[] {
  return [openAccess(config), uncachedEtcdApi(config), obsoleteOptions(config)].filter(
    (text) => text !== undefined,
  );
}

/**
 * What the configuration leaves open that an operator may not expect: a sentence for the log. Undefined if there is
 * nothing to say. A service for this machine alone that has no sources of identities, and no rights of its own to lend, is
 * meant to be open.
 */
export function openAccess(config: Config): string | undefined {
  const { listen, policy, tls } = config;
  const { tokenFile, jwt, trustedForwarders } = config.identity;
  const clientAuth = tls?.clientAuth ?? "off";
  const sources = [tokenFile, jwt, trustedForwarders];
  const hasSources = clientAuth !== "off" || sources.some((source) => source !== undefined);
  if (policy !== undefined) {
    if (hasSources) return undefined;
    return "there is a policy, but nothing recognises callers: all of them are anonymous";
  }
  // Callers of etcd's API have their own rights in etcd.
  if (servesEtcdAlone(config)) return undefined;
  const lent = lentRights(config);
  const isLocal = "path" in listen || isLocalHost(listen.host);
  if (isLocal && !hasSources && lent === "") return undefined;
  const who = clientAuth === "require" ? "" : ", also without a credential,";
  return `without --policy every caller${who} may read and write everything${lent}`;
}

/** Whether clients get nothing but etcd's own API: this service's own is left out, or has no resource. */
function servesEtcdAlone({ ownApi, etcdApi, resources }: Config): boolean {
  return !ownApi || (etcdApi !== undefined && resources.length === 0);
}

/** The rights of this service that callers have, as the end of a sentence; empty: it has no rights of its own, as far as is known. */
function lentRights({ etcd, etcdApi, upstream }: Config): string {
  const auth = etcd?.auth ?? etcdApi?.next.auth;
  if (auth !== undefined) return ` as etcd's user ${auth.username}`;
  if (etcd?.tls?.client !== undefined) return " that this service's certificate may in etcd";
  const hasCredential = upstream?.tokenFile ?? upstream?.tls?.client;
  return hasCredential === undefined ? "" : " that this relay may at its upstream";
}

/** What an operator may not expect of the etcd API, a sentence for the log; undefined: nothing. */
export function uncachedEtcdApi({
  etcdApi,
  resources,
  upstream,
}: Pick<Config, "etcdApi" | "resources" | "upstream">): string | undefined {
  if (etcdApi === undefined || resources.some(({ cache }) => cache)) return undefined;
  if (upstream !== undefined)
    return "the upstream caches nothing, so each watch and read of the etcd API is passed on to it";
  return (
    "nothing is cached, so each watch and read of the etcd API is one of etcd; name keys to cache with --resource " +
    "NAME=PREFIX, or all of them with --resource all="
  );
}

/** A warning about options that have no effect any more; undefined: none is used. */
function obsoleteOptions({ framing }: Config): string | undefined {
  return framing === "node"
    ? "--framing node has no effect any more: the service writes the messages of responses itself"
    : undefined;
}
