import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { TimeSliceScheduler } from "../../base/time-slices.ts";
import { WatchedFiles } from "../../base/watched-files.ts";
import { Cacher } from "../../cacher/cacher.ts";
import { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import { BackfillQueue } from "../../cacher/options.ts";
import { ObjectAttributes } from "../../cacher/request/object-attributes.ts";
import { AttributeReader } from "../../codec/attribute-reader.ts";
import type { Config, ListenAddress } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import { type ReadinessCheck, startAdmin } from "../../server/admin/admin.ts";
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
import { watchServerCertificates } from "./certificate-files.ts";
import { openEtcdApi } from "./etcd-api.ts";
import { openIdentitySources } from "./identity.ts";
import { openAccess } from "./open-access.ts";
import { openRights } from "./rights.ts";
import { StartError } from "./start-error.ts";
import { openStorages } from "./storages.ts";

/** A running service. */
export interface Service {
  /** Address of the gRPC server. */
  readonly grpc: ListenAddress;
  /** Address of the admin server. */
  readonly admin: ListenAddress;
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
export async function startService(config: Config, clock: Clock, logger: Logger): Promise<Service> {
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
    const storages = openStorages(config, clock, logger, files);
    closing.push(() => storages.close());
    const backfillQueue = new BackfillQueue();
    const caches = new Map<string, Cacher>();
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
        attributes,
        indexes,
        eventWindow,
        backfillQueue,
        watchers: {
          stallTimeoutMs: config.stallTimeoutMs,
          dispatchIntervalMs: config.dispatchIntervalMs,
        },
        consistencyIntervalMs: config.consistencyIntervalMs,
        scheduler,
        upstreamLimiter,
      });
      caches.set(name, cacher);
      served.set(name, cacher);
      closing.push(() => cacher.close());
    }
    const etcdApi = openEtcdApi(config, { clock, logger, files, meter: metrics.meter });
    if (etcdApi !== undefined) closing.push(async () => etcdApi.close());
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

    let draining = false;
    const admin = await listening("admin", config.admin, () =>
      startAdmin({
        listen: config.admin,
        readiness: () => readiness(caches, draining),
        metrics,
        logger,
        others: etcdApi?.pages,
      }),
    );
    closing.push(() => admin.close());
    let server: RunningServer | undefined;
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
        relayed: etcdApi?.services,
        limits: {
          responseFlushMs: config.stallTimeoutMs,
          maxStreamAgeMs: config.maxStreamAgeMs,
          maxStreams: config.maxStreams,
        },
      }),
    );
    server = running;
    closing.push(() => running.drain(config.shutdownTimeoutMs));
    if (config.tls !== undefined) watchServerCertificates(files, config.tls, running);
    registerServerMetrics(metrics.meter, running);
    await storages.check();
    for (const cacher of caches.values()) cacher.start();

    let stopped: Promise<void> | undefined;
    return {
      grpc: { host: running.host, port: running.port },
      admin: { host: admin.host, port: admin.port },
      stop: () => {
        draining = true;
        stopped ??= closeAll();
        return stopped;
      },
    };
  } catch (error) {
    await closeAll();
    throw error;
  }
}

function readiness(
  caches: ReadonlyMap<string, Cacher>,
  draining: boolean,
): readonly ReadinessCheck[] {
  const checks = [...caches].map(([name, cacher]) => ({
    name: `resource/${name}`,
    failure: cacher.ready ? undefined : notReadyReason(cacher),
    warning: cacher.ready ? staleness(cacher) : undefined,
    note: cacher.ready ? backfillProgress(cacher) : undefined,
  }));
  const failure = draining ? "the service is shutting down" : undefined;
  return [{ name: "serving", failure }, ...checks];
}

/** Why a cache has not become ready. A ready cache stays ready when the store is lost. */
function notReadyReason(cacher: Cacher): string {
  const still = "the cache has not synced with the store yet";
  const failure = cacher.upstreamFailure;
  return failure === undefined ? still : `${still}: ${failure.message}`;
}

/** The progress of the event window's backfill; undefined once it is complete. */
function backfillProgress(cacher: Cacher): string | undefined {
  const { backfill, eventWindow } = cacher.stats();
  const from = `begins at revision ${eventWindow.oldestRevision}`;
  if (backfill.state === "running") return `the event window ${from}; backfill is in progress`;
  if (backfill.state === "paused") {
    return `the event window ${from}; older events are read when a stream resumes from them`;
  }
  const isEarly = ["costly", "failed", "conflicting"].includes(backfill.state);
  return isEarly ? `the event window ${from}; backfill ended early: ${backfill.state}` : undefined;
}

/** How old the cache's responses may be while the store is unreachable; undefined while it is reachable. */
function staleness(cacher: Cacher): string | undefined {
  const failure = cacher.upstreamFailure;
  if (failure === undefined) return undefined;
  const { revision, upstreamSilenceMs } = cacher.stats();
  const seconds = (upstreamSilenceMs / 1_000).toFixed(1);
  return `stale: at revision ${revision}, received nothing for ${seconds} s: ${failure.message}`;
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
    throw new StartError(
      `--${option}: can't listen on ${formatAddress(address)}: ${reasonOf(error)}. ` +
        `Choose another with --${option} HOST:PORT; port 0 selects a free port.`,
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
