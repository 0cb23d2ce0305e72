import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Config, ListenAddress, ResourceConfig, TcpAddress } from "../../config/config.ts";
import { type ReadinessCheck, type RunningAdmin, startAdmin } from "../../server/admin/admin.ts";
import { StatusPages } from "../../server/admin/status/status-pages.ts";
import { registerWorkerMetrics } from "../../telemetry/worker-metrics.ts";
import { ProcessStatus } from "../status/process-status.ts";
import type { RecentProblems } from "../status/recent-problems.ts";
import { ServiceStatus } from "../status/service-status.ts";
import { ceilingOfProcess } from "../workers/worker-config.ts";
import { watchAdminCertificate } from "./certificate-files.ts";
import { type OpenEtcdApi, openEtcdApi } from "./etcd-api.ts";
import { watchedTokens } from "./identity.ts";
import { listening } from "./listening.ts";
import { obsoleteOptions } from "./obsolete-options.ts";
import { openAccess } from "./open-access.ts";
import { openOtlp } from "./otlp.ts";
import { ServiceProcess } from "./service-process.ts";
import { uncachedEtcdApi } from "./uncached-etcd-api.ts";
import type { ServeOptions, Workers } from "./workers.ts";

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
  /** The checks of /readyz, as they are now. */
  readiness(): readonly ReadinessCheck[];
  /**
   * Stops gracefully: turns not ready, sends every stream a last bookmark and DRAINING, waits up to the configured time
   * for clients to accept them, then closes everything. Idempotent.
   */
  stop(): Promise<void>;
  /** Ends the processes of its workers at once, before this process ends. */
  kill(): void;
}

/**
 * Starts a service. It serves when this resolves, and is ready once its caches have synced. Rejects with a StartError, and
 * closes everything before. `options` are required for a configuration with more than one worker, to change the log level,
 * and to show the last warnings in the status.
 */
export async function startService(
  given: Config,
  clock: Clock,
  logger: Logger,
  options?: ServeOptions,
): Promise<Service> {
  const hasWorkers = given.workers > 1;
  const latestFiles = hasWorkers ? options?.snapshot.files : undefined;
  const process = new ServiceProcess(
    hasWorkers ? { ...given, memoryCeilingBytes: ceilingOfProcess(given) } : given,
    clock,
    logger,
    await openOtlp(given, { clock, logger }),
    latestFiles && ((path, content) => latestFiles.set(path, content)),
  );
  try {
    const { files, metrics } = process;
    const workers = hasWorkers ? await openWorkers(given, options, clock, logger) : undefined;
    if (workers !== undefined) {
      process.onStop(() => workers.stop());
      registerWorkerMetrics(metrics.meter, workers);
    }
    const etcdApi = openEtcdApi(given, { clock, logger, files, meter: metrics.meter });
    if (etcdApi !== undefined) process.onStop(async () => etcdApi.close());
    // Before the upstream of a relay is asked, so that an orchestrator finds out what the relay waits for.
    const source = statusOf(process, workers, etcdApi, clock, options?.problems);
    const status = new StatusPages(source, clock, logger);
    const pages = { status, others: etcdApi?.pages, logLevel: options?.level };
    const admin = await openAdmin(process, workers, logger, pages);
    await process.openCaches();
    etcdApi?.serve(process.cachedResources());
    const { config } = process;
    for (const warning of [openAccess(config), uncachedEtcdApi(config), obsoleteOptions(config)]) {
      if (warning !== undefined) logger.warn(warning);
    }
    if (workers === undefined) {
      const { listen } = config;
      await listening("listen", listen, () =>
        process.serveClients({ listen, relayed: etcdApi?.services, pages: etcdApi?.pages }),
      );
    } else {
      await workers.listen();
      workers.checkClientFiles(config, { clock, logger, files });
      await workers.serveMain((terms) => process.serveWorkers(terms));
      // Before the caches and the server that they follow.
      process.onStop(() => workers.stop());
    }
    await process.begin();
    await workers?.start();
    // Before everything else: an open page must not delay the shutdown.
    process.onStop(async () => status.close());
    process.watchExpiry();
    process.started();
    return {
      grpc: workers?.address ?? process.server.address,
      admin: { host: admin.host, port: admin.port },
      instanceId: process.instanceId,
      resources: config.resources,
      readiness: () => checksOf(process, workers),
      stop: () => process.stop(),
      kill: () => workers?.kill(),
    };
  } catch (error) {
    await process.stop();
    throw error;
  }
}

/** The checks of /readyz. */
function checksOf(process: ServiceProcess, workers: Workers | undefined): ReadinessCheck[] {
  return [...process.readiness(), ...(workers?.readiness() ?? [])];
}

async function openAdmin(
  process: ServiceProcess,
  workers: Workers | undefined,
  logger: Logger,
  pages: Pick<Parameters<typeof startAdmin>[0], "others" | "logLevel" | "status">,
): Promise<RunningAdmin> {
  const { files, metrics, config } = process;
  const { listen, tls, tokenFile } = config.admin;
  const admin = await listening("admin", listen, () =>
    startAdmin({
      ...{ listen, tls, logger, ...pages },
      tokens: tokenFile && watchedTokens("admin-token-file", tokenFile, files),
      readiness: () => checksOf(process, workers),
      metrics: workers === undefined ? metrics : workers.withWorkers(metrics),
    }),
  );
  process.onStop(() => admin.close());
  if (tls !== undefined) watchAdminCertificate(files, tls, admin);
  return admin;
}

function statusOf(
  process: ServiceProcess,
  workers: Workers | undefined,
  etcdApi: OpenEtcdApi | undefined,
  clock: Clock,
  problems: RecentProblems | undefined,
): ServiceStatus {
  const main = {
    instance: process.id,
    status: new ProcessStatus(0, clock, () => process.parts(), problems),
    caches: process.parts().caches,
    // It changes when a relay knows what its upstream serves.
    get config() {
      return process.config;
    },
    get upstreamsInUse() {
      return process.upstreamsInUse;
    },
    get certificates() {
      return process.files.certificates();
    },
    get etcdApiOutage() {
      return etcdApi?.outage();
    },
    get checks() {
      return checksOf(process, workers);
    },
  };
  return new ServiceStatus(main, workers?.forStatus, clock);
}

async function openWorkers(
  config: Config,
  options: ServeOptions | undefined,
  clock: Clock,
  logger: Logger,
): Promise<Workers> {
  if (options === undefined) throw new Error("Workers need what their configuration is read from.");
  // A service without workers starts faster without them.
  const { Workers } = await import("./workers.ts");
  return new Workers(config, options, clock, logger);
}
