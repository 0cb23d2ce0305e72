import type { Logger } from "pino";
import type { EventWindowBounds } from "../../cacher/state/event-window.ts";
import type { ResourceInfo } from "../../client/resource-info.ts";
import { relayedResource } from "../../config/assemble-resources.ts";
import type { Config, ResourceConfig, UpstreamConfig } from "../../config/config.ts";
import { nearest } from "../../config/setting.ts";
import { KeptResources } from "./kept-resources.ts";
import type { ProcessContext } from "./process-context.ts";
import type { Relay } from "./relay.ts";
import { StartError } from "./start-error.ts";

/** Maximum number of names that a message lists. */
const maxNamesListed = 10;

/** Throws an Error with a sentence for certificates that can't be used. */
export async function openRelay(
  upstream: UpstreamConfig,
  instanceId: string,
  context: ProcessContext,
): Promise<Relay> {
  // A service that is not a relay starts faster without the client library.
  const { Relay } = await import("./relay.ts");
  return new Relay({ upstream, instanceId, ...context });
}

/** The configuration with the resources that are served: those of a relay depend on what its upstream serves to it. */
export async function withRelayedResources(
  config: Config,
  user: string,
  relay: Relay | undefined,
  { logger, clock }: ProcessContext,
  onWaiting: (why: string) => void,
): Promise<Config> {
  if (relay === undefined) return config;
  const { resources: configured, eventWindow, etcdApi, cacheDir } = config;
  const source = { upstream: relay.addresses, user };
  const kept = cacheDir && new KeptResources(cacheDir, source, logger, clock);
  const known = kept ? await kept.load() : undefined;
  const served = await relay.resources(onWaiting, known);
  if (kept && served !== known) await kept.keep(served);
  const hasEtcdApi = etcdApi !== undefined;
  const upstream = relay.addresses.join(", ");
  const given = { configured, served, eventWindow, hasEtcdApi, upstream, logger };
  const resources = relayedResources(given);
  const historyKey = served.find(({ etcdKeys }) => etcdKeys !== undefined)?.etcdKeys?.historyKey;
  if (etcdApi === undefined || historyKey === undefined) return { ...config, resources };
  return { ...config, resources, etcdApi: { ...etcdApi, next: { ...etcdApi.next, historyKey } } };
}

/** What decides which resources a relay serves. */
interface RelayedResourcesOptions {
  /** The configured ones; none: all that the relay may read completely. */
  readonly configured: readonly ResourceConfig[];
  /** What the upstream serves of which the relay may read anything. */
  readonly served: readonly ResourceInfo[];
  /** The bounds of resources without an event window of their own. */
  readonly eventWindow: EventWindowBounds;
  /** Whether the relay serves etcd's own API as well: then the upstream must have it. */
  readonly hasEtcdApi: boolean;
  /** The addresses of the upstream, for messages. */
  readonly upstream: string;
  readonly logger: Logger;
}

/**
 * The resources that a relay serves. Throws a StartError if one of them is not served by the upstream, or the relay may not
 * get, list and watch all of it.
 */
function relayedResources(options: RelayedResourcesOptions): readonly ResourceConfig[] {
  const { configured, served, eventWindow, hasEtcdApi, upstream, logger } = options;
  if (configured.length > 0) return configured.map((resource) => checked(resource, options));
  const inFull = served.filter(({ isReadableInFull }) => isReadableInFull);
  const inPart = served.filter(({ isReadableInFull }) => !isReadableInFull);
  // Without a cache each call of etcd's API is passed on.
  if (inFull.length === 0 && hasEtcdApi) return [];
  if (inFull.length === 0) {
    const part = inPart.length === 0 ? "" : ` It may read a part of: ${listed(inPart)}.`;
    throw new StartError(
      `--upstream: ${upstream} serves no resource that this relay may get, list and watch completely.${part} Check the ` +
        "relay's token and certificate, and the rights of its identity in the policy there.",
    );
  }
  if (inPart.length > 0) {
    const resources = inPart.map(({ name }) => name).join(", ");
    logger.warn({ resources }, "not relayed, since the relay may read only a part of them");
  }
  return inFull.map((info) => withUpstream(relayedResource(info.name, eventWindow), info, options));
}

function checked(resource: ResourceConfig, options: RelayedResourcesOptions): ResourceConfig {
  const { served, upstream } = options;
  const { name, upstreamName = name } = resource;
  const info = served.find((other) => other.name === upstreamName);
  const quoted = JSON.stringify(upstreamName);
  if (info === undefined) {
    const meant = nearest(
      upstreamName,
      served.map((other) => other.name),
    );
    const hint = meant === undefined ? "" : ` Did you mean ${JSON.stringify(meant)}?`;
    throw new StartError(
      `--resource: ${upstream} has no resource ${quoted} that this relay may read.${hint} It may read: ${listed(served)}. ` +
        "Check the name, and the rights of the relay's identity in the policy there.",
    );
  }
  if (!info.isReadableInFull) {
    throw new StartError(
      `--resource: this relay may read only a part of ${quoted} at ${upstream}, and it has to get, list and watch all keys. ` +
        "Grant its identity the verbs get, list and watch on all of it, in the policy there.",
    );
  }
  return withUpstream(resource, info, options);
}

/** Adapts the resource to how the upstream serves it. Throws a StartError if it lacks etcd's API, and the relay has it. */
function withUpstream(
  given: ResourceConfig,
  { isCached, codec, etcdKeys, name: upstreamName }: ResourceInfo,
  { hasEtcdApi, upstream, logger }: RelayedResourcesOptions,
): ResourceConfig {
  if (hasEtcdApi && etcdKeys === undefined) {
    throw new StartError(
      `--etcd-api: ${upstream} does not serve etcd's API for the resource ${JSON.stringify(upstreamName)} to this relay. Set ` +
        "--etcd-api there as well; with a policy there, grant the relay's identity every verb on every key of every " +
        "resource.",
    );
  }
  const resource = etcdKeys === undefined ? given : { ...given, prefix: etcdKeys.prefix };
  const { name } = resource;
  const hasSelectors = codec === "json" || codec === "protobuf";
  if (hasSelectors && !resource.codec.hasAttributes) {
    logger.info(
      { resource: name, codec },
      "the upstream accepts selectors for this resource, and this relay does not: it has no codec of its own",
    );
  }
  if (isCached || !resource.cache) return resource;
  logger.info(
    { resource: name },
    "the upstream has no cache of this resource, so the relay does without one",
  );
  return { ...resource, cache: false };
}

function listed(resources: readonly ResourceInfo[]): string {
  if (resources.length === 0) return "none";
  const names = resources.slice(0, maxNamesListed).map(({ name }) => JSON.stringify(name));
  const more =
    resources.length > maxNamesListed ? ` and ${resources.length - maxNamesListed} more` : "";
  return names.join(", ") + more;
}
