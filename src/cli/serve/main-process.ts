import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import type { Config, ListenAddress, ResourceConfig, TcpAddress } from "../../config/config.ts";
import { isLocalHost } from "../../identity/peer.ts";
import { type ReadinessCheck, type RunningAdmin, startAdmin } from "../../server/admin/admin.ts";
import { BackupPage } from "../../server/admin/backup-page.ts";
import { LivePages } from "../../server/admin/live/live-pages.ts";
import { StatusPages } from "../../server/admin/status/status-pages.ts";
import { registerWorkerMetrics } from "../../telemetry/service-metrics.ts";
import { ProcessStatus } from "../status/process-status.ts";
import { ServiceStatus } from "../status/service-status.ts";
import { ceilingOfProcess } from "../workers/worker-config.ts";
import { watchPair } from "./certificates.ts";
import { backupFolderOf } from "./embedded-store.ts";
import { watchedTokens } from "./identity.ts";
import { openOtlp } from "./otlp.ts";
import { ServiceProcess } from "./service-process.ts";
import { listening } from "./start-error.ts";
import { startUpWarnings } from "./start-up-text.ts";
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
  const main = new ServiceProcess(
    hasWorkers ? { ...given, memoryCeilingBytes: ceilingOfProcess(given) } : given,
    clock,
    logger,
    await openOtlp(given, { clock, logger }),
    latestFiles && ((path, content) => latestFiles.set(path, content)),
  );
  try {
    const { context } = main;
    const workers = hasWorkers ? await openWorkers(given, options, clock, logger) : undefined;
    if (workers !== undefined) {
      main.onStop(() => workers.stop());
      registerWorkerMetrics(context.meter, workers);
    }
    const { metrics } = main;
    main.openEtcdApi(workers === undefined ? metrics : workers.withWorkers(metrics));
    // Before the upstream of a relay is asked, so that an orchestrator finds out what the relay waits for.
    const source = new ServiceStatus({
      ...{ main, workers: workers?.pool, clock },
      status: new ProcessStatus(0, clock, () => main.parts(), options?.problems),
      checks: () => checksOf(main, workers),
    });
    const backup = backupPageOf(main);
    const live = livePagesOf(main, workers);
    const status = new StatusPages(source, clock, logger, live !== undefined);
    const pages = { status, backup, live, others: main.etcdPages, logLevel: options?.level };
    const admin = await openAdmin(main, workers, pages);
    // Also loads what its file has: meanwhile /livez responds.
    await main.openStore(
      options?.onFailure ?? ((message) => logger.fatal({ message }, "the service has failed")),
    );
    await main.openCaches();
    const { config } = main;
    for (const warning of startUpWarnings(config)) logger.warn(warning);
    if (workers === undefined) {
      const { listen } = config;
      await listening("listen", listen, () => main.serveClients({ listen }));
    } else {
      await workers.listen();
      workers.checkClientFiles(config, context);
      await workers.serveMain((terms) => main.serve(terms));
      // Before the caches and the server that they follow.
      main.onStop(() => workers.stop());
    }
    await main.begin();
    await workers?.start();
    // Before everything else: an open page or a backup must not delay the shutdown.
    main.onStop(async () => status.close());
    main.onStop(async () => backup?.close());
    main.onStop(async () => live?.close());
    main.watchExpiry();
    main.followMembers();
    main.started();
    return {
      grpc: workers?.address ?? main.server.address,
      admin: { host: admin.host, port: admin.port },
      instanceId: main.instanceId,
      resources: config.resources,
      readiness: () => checksOf(main, workers),
      stop: () => main.stop(),
      kill: () => workers?.pool.kill(),
    };
  } catch (error) {
    await main.stop();
    throw error;
  }
}

/** The checks of /readyz. */
function checksOf(main: ServiceProcess, workers: Workers | undefined): ReadinessCheck[] {
  return [...main.readiness(), ...(workers?.pool.readiness() ?? [])];
}

async function openAdmin(
  main: ServiceProcess,
  workers: Workers | undefined,
  pages: Pick<
    Parameters<typeof startAdmin>[0],
    "others" | "logLevel" | "status" | "backup" | "live"
  >,
): Promise<RunningAdmin> {
  const { context, metrics, config } = main;
  const { files, logger } = context;
  const { listen, tls, tokenFile } = config.admin;
  const admin = await listening("admin", listen, () =>
    startAdmin({
      ...{ listen, tls, logger, ...pages },
      tokens: tokenFile && watchedTokens("admin-token-file", tokenFile, files),
      readiness: () => checksOf(main, workers),
      metrics: workers === undefined ? metrics : workers.withWorkers(metrics),
    }),
  );
  main.onStop(() => admin.close());
  if (tls !== undefined) watchPair(files, "admin-certificate", tls, admin);
  return admin;
}

/** Undefined: there is no file to back up. */
function backupPageOf(main: ServiceProcess): BackupPage | undefined {
  const { config, context } = main;
  const path = config.data?.path;
  if (path === undefined) return undefined;
  return new BackupPage({
    source: () => main.journal,
    temporaryFolder: backupFolderOf(path),
    refusal: backupRefusal(config),
    logger: context.logger,
  });
}

/**
 * Why the admin port gives no backup, a sentence: that has all data, which without a token it may give only where every
 * client that can reach the port may read everything. Undefined: it gives them.
 */
export function backupRefusal({
  admin,
  identity,
  policy,
  tls,
  listen,
}: Config): string | undefined {
  if (admin.tokenFile !== undefined) return undefined;
  const { tokenFile, jwt, trustedForwarders } = identity;
  const credentials = [tokenFile, jwt, trustedForwarders, policy, tls?.clientCa];
  const isLimited = credentials.some((source) => source !== undefined) || "path" in listen;
  const isWider = !isLimited && isLocalHost(listen.host) && !isLocalHost(admin.listen.host);
  if (!isLimited && !isWider) return undefined;
  return "Set --admin-token-file: a backup has all data, and clients of this service need more to get them.";
}

/** Where this process is reached that listens at each address of the machine. */
const loopbackOf: Readonly<Record<string, string>> = { "0.0.0.0": "127.0.0.1", "::": "::1" };

/** Undefined: there are no calls for its page. */
function livePagesOf(main: ServiceProcess, workers: Workers | undefined): LivePages | undefined {
  const { config } = main;
  if (!config.ownApi) return undefined;
  const target = () => {
    const hasTls = config.tls !== undefined;
    const address = workers?.address ?? main.server.address;
    if ("path" in address) return { path: address.path, hasTls };
    // The address for connections from this machine.
    const host = loopbackOf[address.host] ?? address.host;
    return { host, port: address.port, hasTls };
  };
  return new LivePages({ target, refusal: liveRefusal(config) });
}

/**
 * Why the admin port does not pass on the calls of the live page, a sentence: without a token, each client that can reach that port must
 * be able to reach the port of the service as well, and the calls of a page have no client certificate. Undefined: it does.
 */
export function liveRefusal({
  admin,
  listen,
  tls,
}: Pick<Config, "admin" | "listen" | "tls">): string | undefined {
  if (tls?.clientAuth === "require") {
    return "The service refuses connections without a client certificate, which this page does not have. Set --tls-client-auth request with a --policy, and enter a token on the page.";
  }
  if (admin.tokenFile !== undefined) return undefined;
  const isWider = "path" in listen || (isLocalHost(listen.host) && !isLocalHost(admin.listen.host));
  return isWider
    ? "Set --admin-token-file: this port can be reached from where the service can't be."
    : undefined;
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
