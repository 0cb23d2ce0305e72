import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchedFiles } from "../../base/watched-files.ts";
import { Cacher } from "../../cacher/cacher.ts";
import { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import { BackfillQueue } from "../../cacher/options.ts";
import { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import { isRightLost } from "../../client/remote/relayed-calls.ts";
import { AttributeReader } from "../../codec/attribute-reader.ts";
import type {
  Config,
  ListenAddress,
  ResourceConfig,
  TcpAddress,
  UpstreamConfig,
} from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import { startAdmin } from "../../server/admin/admin.ts";
import { memoryGauges } from "../../server/pressure/memory-gauges.ts";
import { type RunningServer, type ServedResource, startServer } from "../../server/server.ts";
import { UncachedResource } from "../../server/services/uncached-resource.ts";
import { registerCacheMetrics } from "../../telemetry/cache-metrics.ts";
import {
  registerAuthenticationMetrics,
  registerFileReloads,
  registerKeyRequests,
} from "../../telemetry/identity-metrics.ts";
import { PrometheusMetrics } from "../../telemetry/prometheus.ts";
import { registerReadMetrics } from "../../telemetry/read-metrics.ts";
import { registerAuditMetrics, registerRightsMetrics } from "../../telemetry/rights-metrics.ts";
import { RpcMetrics } from "../../telemetry/rpc-metrics.ts";
import { registerServerMetrics } from "../../telemetry/server-metrics.ts";
import { registerSkippedKeys, registerUndecodableValues } from "../../telemetry/storage-metrics.ts";
import { version } from "../output/version.ts";
import { watchAdminCertificate, watchServerCertificates } from "./certificate-files.ts";
import { openEtcdApi } from "./etcd-api.ts";
import { openIdentitySources, watchedTokens } from "./identity.ts";
import { newInstanceId } from "./instance-id.ts";
import { openAccess } from "./open-access.ts";
import { type Pending, readiness } from "./readiness.ts";
import type { Relay } from "./relay.ts";
import { relayedResources } from "./relayed-resources.ts";
import { openRights } from "./rights.ts";
import { StartError } from "./start-error.ts";
import { openStorages } from "./storages.ts";

/** A running service. */
export interface Service {
  /** Address of the gRPC server. */
  readonly grpc: ListenAddress;
  /** Address of the admin server. */
  readonly admin: TcpAddress;
  /** Identifies this process in the path of requests that relays pass on. Undefined: it is not a relay. */
  readonly instanceId: string | undefined;
  /** What it serves: as configured, or what the upstream of a relay serves to it. */
  readonly resources: readonly ResourceConfig[];
  /**
   * Stops gracefully: turns not ready, sends every stream a last bookmark and DRAINING, waits up to the configured time
   * for clients to accept them, then closes everything. Idempotent.
   */
  stop(): Promise<void>;
}

/**
 * Starts a service. It serves when this resolves, and is ready once its caches have synced. Rejects with a StartError, and
 * closes everything before.
 */
export async function startService(given: Config, clock: Clock, logger: Logger): Promise<Service> {
  const closing: (() => Promise<void>)[] = [];
  /** Closes everything in reverse order. */
  const closeAll = async (): Promise<void> => {
    for (const close of closing.splice(0).reverse()) await close();
  };
  try {
    const metrics = new PrometheusMetrics(version);
    closing.push(() => metrics.close());
    // Shared by all resources.
    const scheduler = new TimeSliceScheduler(clock);
    const upstreamLimiter = new UpstreamLimiter(clock);
    registerReadMetrics(metrics.meter, scheduler, upstreamLimiter);
    const files = new WatchedFiles(clock, logger);
    closing.push(async () => files.close());
    registerFileReloads(metrics.meter, files);
    const caches = new Map<string, Cacher>();
    /** Why the service as a whole does not serve. */
    let pending: Pending = "the service is starting";
    // Before the upstream of a relay is asked, so that an orchestrator finds out what the relay waits for.
    let server: RunningServer | undefined;
    const etcdApi = openEtcdApi(given, { clock, logger, files, meter: metrics.meter });
    if (etcdApi !== undefined) closing.push(async () => etcdApi.close());
    const { tls: adminTls, tokenFile: adminTokens } = given.admin;
    const admin = await listening("admin", given.admin.listen, () =>
      startAdmin({
        listen: given.admin.listen,
        tls: adminTls,
        tokens: adminTokens && watchedTokens("admin-token-file", adminTokens, files),
        readiness: () => readiness(caches, pending, server?.stats().pressure.level ?? "normal"),
        metrics,
        logger,
        others: etcdApi?.pages,
      }),
    );
    closing.push(() => admin.close());
    if (adminTls !== undefined) watchAdminCertificate(files, adminTls, admin);
    const relay = given.upstream && (await openRelay(given.upstream, { clock, logger, files }));
    if (relay !== undefined) closing.push(() => relay.close());
    const config = await withResources(given, relay, logger, (why) => {
      pending = why;
    });
    const storages = openStorages(config, { clock, logger, files, relay });
    closing.push(() => storages.close());
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
        closing.push(() => storage.close());
        continue;
      }
      const cacher = new Cacher({
        storage,
        clock,
        logger,
        name,
        rawKeys: etcdApi !== undefined,
        attributes,
        indexes,
        eventWindow,
        backfillQueue,
        watchers: {
          stallTimeoutMs: config.stallTimeoutMs,
          dispatchIntervalMs: config.dispatchIntervalMs,
        },
        consistencyIntervalMs: config.consistencyIntervalMs,
        mayNotServeAfter: isRightLost,
        scheduler,
        upstreamLimiter,
      });
      caches.set(name, cacher);
      served.set(name, cacher);
      closing.push(() => cacher.close());
    }
    etcdApi?.serve(storages.cachedResources(caches));
    registerCacheMetrics(metrics.meter, caches);
    registerUndecodableValues(metrics.meter, readers);
    registerSkippedKeys(metrics.meter, storages.skippingKeys);

    const open = openAccess(config);
    if (open !== undefined) logger.warn(open);
    const { authorizer, audit } = openRights(config, [...served.keys()], {
      ...{ clock, logger, files },
    });
    registerRightsMetrics(metrics.meter, authorizer);
    if (audit !== undefined) {
      closing.push(() => audit.close());
      registerAuditMetrics(metrics.meter, audit);
    }

    const sources = openIdentitySources(config, { clock, logger, files }, (identity) =>
      server?.revoke(identity),
    );
    closing.push(async () => sources.close());
    const { authenticators, remoteKeys } = sources;
    if (authenticators !== undefined) registerAuthenticationMetrics(metrics.meter, authenticators);
    if (remoteKeys !== undefined) registerKeyRequests(metrics.meter, remoteKeys);
    const running = await listening("listen", config.listen, () =>
      startServer({
        resources: served,
        listen: config.listen,
        tls: config.tls,
        authenticators,
        clock,
        logger,
        observer: new RpcMetrics(metrics.meter),
        memoryGauges: memoryGauges(config.memoryCeilingBytes),
        authorizer,
        audit,
        framing: config.framing,
        instanceId: relay?.instanceId,
        upstream: relay,
        codecs: new Map(config.resources.map(({ name, codec }) => [name, codec.name])),
        relayed: etcdApi?.services,
        limits: {
          responseFlushMs: config.stallTimeoutMs,
          maxStreamAgeMs: config.maxStreamAgeMs,
          ...config.limits,
        },
      }),
    );
    server = running;
    closing.push(() => running.drain(config.shutdownTimeoutMs));
    if (config.tls !== undefined) watchServerCertificates(files, config.tls, running);
    registerServerMetrics(metrics.meter, running);
    await storages.check();
    for (const cacher of caches.values()) cacher.start();
    void relay?.follow(given.resources.length > 0);
    pending = undefined;

    let stopped: Promise<void> | undefined;
    return {
      grpc: running.address,
      admin: { host: admin.host, port: admin.port },
      instanceId: relay?.instanceId,
      resources: config.resources,
      stop: () => {
        pending = "the service is shutting down";
        stopped ??= closeAll();
        return stopped;
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

/** Throws an Error with a sentence for certificates that can't be used. */
async function openRelay(
  upstream: UpstreamConfig,
  deps: { readonly clock: Clock; readonly logger: Logger; readonly files: WatchedFiles },
): Promise<Relay> {
  // A service that is not a relay starts faster without the client library.
  const { Relay } = await import("./relay.ts");
  return new Relay({ upstream, instanceId: newInstanceId(), ...deps });
}

/** The configuration with the resources that are served: those of a relay depend on what its upstream serves to it. */
async function withResources(
  config: Config,
  relay: Relay | undefined,
  logger: Logger,
  onWaiting: (why: string) => void,
): Promise<Config> {
  if (relay === undefined) return config;
  const served = await relay.resources(onWaiting);
  const { resources: configured, eventWindow } = config;
  const upstream = relay.address;
  const resources = relayedResources({ configured, served, eventWindow, upstream, logger });
  return { ...config, resources };
}

const reasons: Readonly<Record<string, string>> = {
  EADDRINUSE: "the address is in use",
  EADDRNOTAVAIL: "this machine does not have that address",
  EACCES: "permission denied",
  ENOTFOUND: "unknown host name",
  "Name resolution failed": "unknown host name",
};

/** Turns a failure to listen into a sentence that names the option. */
async function listening<T>(
  option: "listen" | "admin",
  address: ListenAddress,
  start: () => Promise<T>,
): Promise<T> {
  try {
    return await start();
  } catch (error) {
    const other =
      "path" in address
        ? `Choose another with --${option} unix:PATH.`
        : `Choose another with --${option} HOST:PORT; port 0 selects a free port.`;
    throw new StartError(
      `--${option}: can't listen on ${formatAddress(address)}: ${reasonOf(error)}. ${other}`,
      { cause: error },
    );
  }
}

/** grpc-js, and a name with several addresses, have the error code in the message only. */
function reasonOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  const code = /\bE[A-Z]{4,}\b|Name resolution failed/.exec(message)?.[0] ?? "";
  return reasons[code] ?? message;
}
