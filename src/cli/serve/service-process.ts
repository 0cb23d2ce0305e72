import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import type { Logger } from "pino";
import type { Clock } from "../../base/clock.ts";
import { Turns } from "../../base/turns.ts";
import { WatchedFiles } from "../../base/watched-files.ts";
import type { Cacher } from "../../cacher/cacher.ts";
import type { DeepReads } from "../../cacher/catch-up/deep-reads.ts";
import type { UpstreamLimiter } from "../../cacher/freshness/upstream-limiter.ts";
import type { Config } from "../../config/config.ts";
import { formatAddress } from "../../config/value-types.ts";
import { MemberSync } from "../../etcd/client/member-sync.ts";
import type { ConnectInProcess } from "../../etcd/client/upstream-member.ts";
import type { EtcdApi } from "../../etcd-api/etcd-api.ts";
import { EtcdPages } from "../../etcd-api/etcd-pages.ts";
import { Registration } from "../../etcd-api/registration.ts";
import { EtcdServer } from "../../etcd-server/etcd-server.ts";
import type { MetricsSource, ReadinessCheck } from "../../server/admin/admin.ts";
import type { DataFileReport } from "../../server/admin/status/status.ts";
import type { Http1Pages } from "../../server/listener/http1.ts";
import { memoryGauges } from "../../server/pressure/memory-gauges.ts";
import { type RunningServer, type ServerOptions, startServer } from "../../server/server.ts";
import type { Journal } from "../../storage/journal/journal.ts";
import { registerCacheMetrics } from "../../telemetry/cache-metrics.ts";
import {
  registerCertificateExpiry,
  registerFileReloads,
} from "../../telemetry/identity-metrics.ts";
import type { OtlpExport } from "../../telemetry/otlp.ts";
import {
  type EventLoopMonitor,
  observeCollections,
  registerEventLoopMetrics,
  registerGcMetrics,
} from "../../telemetry/process-metrics.ts";
import { PrometheusMetrics } from "../../telemetry/prometheus.ts";
import { RpcMetrics } from "../../telemetry/rpc-metrics.ts";
import { registerServerMetrics } from "../../telemetry/server-metrics.ts";
import type { LatencyBuckets } from "../../telemetry/stage-latency.ts";
import { registerStageLatency } from "../../telemetry/stage-latency.ts";
import {
  registerDeepReads,
  registerReadMetrics,
  registerSkippedKeys,
  registerUndecodableValues,
} from "../../telemetry/storage-metrics.ts";
import type { XdsDoor } from "../../xds/xds-door.ts";
import { version } from "../output/version.ts";
import type { ProcessParts } from "../status/process-status.ts";
import { CacheFolder, ownUser } from "./cache-folder.ts";
import { certificateChecks, watchExpiry, watchServerCertificates } from "./certificates.ts";
import { acceptedConnections, openClientFacing, warnOfFewConnections } from "./client-facing.ts";
import { EmbeddedStore } from "./embedded-store.ts";
import { openEtcdApi } from "./etcd-connections.ts";
import type { ProcessContext } from "./process-context.ts";
import { type Pending, readiness } from "./readiness.ts";
import type { Relay } from "./relay.ts";
import { openRelay, withRelayedResources } from "./relayed-resources.ts";
import { deepReadsOf, ProcessResources, upstreamLimiterOf } from "./resources.ts";
import { openXds } from "./xds.ts";

/** How a server listens, and what differs from the configuration. */
export type ServerTerms = Pick<ServerOptions, "listen" | "limits" | "hasOwnServices">;

/**
 * What each process of a service has: caches of its resources, a gRPC server, metrics, and files that it watches. Call
 * `openEtcdApi`, `openStore` (not in a worker) and `openCaches`, then `serveClients` or, for workers, `serve`, then `begin`, and `stop` also if one of them rejects.
 */
export class ServiceProcess {
  readonly metrics: PrometheusMetrics;
  readonly context: ProcessContext;
  /** Identifies this process among the replicas, and in the path of requests that it passes on as a relay. */
  readonly id = newInstanceId();
  readonly #given: Config;
  readonly #otlp: OtlpExport | undefined;
  readonly #closing: (() => Promise<void>)[] = [];
  readonly #eventLoop: EventLoopMonitor;
  // Shared by all resources.
  readonly #scheduler: Turns;
  readonly #upstreamLimiter: UpstreamLimiter;
  readonly #deepReads: DeepReads;
  #config: Config;
  #store: EmbeddedStore | undefined;
  #resources: ProcessResources | undefined;
  #relay: Relay | undefined;
  #etcdApi: EtcdApi | undefined;
  /** What etcd's API is in front of, if that is the embedded store. Undefined before that is open. */
  #embedded: EtcdServer | undefined;
  #etcdPages: EtcdPages | undefined;
  #server: RunningServer | undefined;
  #xds: XdsDoor | undefined;
  #rpcs: RpcMetrics | undefined;
  #dispatchLatency: LatencyBuckets | undefined;
  /** Why the process as a whole does not serve. */
  #pending: Pending = "the service is starting";
  #stopped: Promise<void> | undefined;

  /**
   * `otlp` exports the metrics and spans; it is closed with the process. `onApplied` is called with each new version of a
   * watched file that is in use from then on.
   */
  constructor(
    given: Config,
    clock: Clock,
    logger: Logger,
    otlp?: OtlpExport,
    onApplied?: (path: string, content: Buffer) => void,
  ) {
    this.metrics = new PrometheusMetrics(version, otlp);
    const { meter } = this.metrics;
    const files = new WatchedFiles(clock, logger, onApplied);
    this.context = { clock, logger, files, meter };
    this.#otlp = otlp;
    this.#given = given;
    this.#config = given;
    this.#scheduler = new Turns(clock);
    this.#upstreamLimiter = upstreamLimiterOf(given, clock);
    this.#deepReads = deepReadsOf(given, clock);
    this.onStop(() => {
      const close = () => this.metrics.close();
      return otlp === undefined ? close() : otlp.close(close);
    });
    otlp?.registerMetrics(meter);
    this.onStop(async () => files.close());
    const eventLoop = registerEventLoopMetrics(meter, clock);
    this.#eventLoop = eventLoop;
    this.onStop(async () => eventLoop.stop());
    const stopObserving = observeCollections(registerGcMetrics(meter));
    this.onStop(async () => stopObserving());
    registerReadMetrics(meter, this.#scheduler, this.#upstreamLimiter);
    registerDeepReads(meter, this.#deepReads);
    registerFileReloads(meter, files);
    registerCertificateExpiry(meter, files);
  }

  /** The configuration, after `openCaches` with the resources that are served: a relay gets them from its upstream. */
  get config(): Config {
    return this.#config;
  }

  /** Identifies this process in the path of requests that relays pass on. Undefined: it is not a relay. */
  get instanceId(): string | undefined {
    return this.#relay?.instanceId;
  }

  /** The caches of its resources, by name. None before `openCaches`. */
  get caches(): ReadonlyMap<string, Cacher> {
    return this.#resources?.caches ?? new Map();
  }

  /** etcd's own API, if the configuration has it. Undefined before `openEtcdApi`. */
  get etcdApi(): EtcdApi | undefined {
    return this.#etcdApi;
  }

  /** The pages of etcd's HTTP port for the admin port, if the configuration has etcd's API. */
  get etcdPages(): Http1Pages | undefined {
    return this.#etcdPages?.ofAdminPort();
  }

  /** The resources. Throws before `openCaches`. */
  get resources(): ProcessResources {
    if (this.#resources === undefined) throw new Error("The resources are not open yet.");
    return this.#resources;
  }

  /** The server. Throws before there is one. */
  get server(): RunningServer {
    if (this.#server === undefined) throw new Error("The server has not started yet.");
    return this.#server;
  }

  /** What backups of the embedded store are made of. Undefined: it has no file, or is not open. */
  get journal(): Journal | undefined {
    return this.#store?.journal;
  }

  /** The file of the embedded store, for the status. */
  get dataFile(): DataFileReport | undefined {
    return this.#store?.report();
  }

  /** What its status is read from. */
  parts(): ProcessParts {
    return {
      ...{ caches: this.caches, server: this.#server, xds: this.#xds },
      ...{ rpcs: this.#rpcs, dispatchLatency: this.#dispatchLatency, eventLoop: this.#eventLoop },
    };
  }

  /** The servers that a relay watches now. */
  get upstreamsInUse(): readonly string[] {
    return this.#relay?.addressesInUse ?? [];
  }

  /** The checks of /readyz. */
  readiness(): readonly ReadinessCheck[] {
    const level = this.#server?.stats().pressure.level ?? "normal";
    const hasEtcdApi = this.#config.etcdApi !== undefined;
    const checks = readiness(this.caches, this.#pending, level, hasEtcdApi);
    const certificates = certificateChecks(this.context.files.certificates(), Date.now());
    return [...checks, ...(this.#store?.readiness() ?? []), ...certificates];
  }

  /** Logs certificates that have expired or expire soon, now and later. Of a service with workers the main process does it. */
  watchExpiry(): void {
    const { files, clock, logger } = this.context;
    const stop = watchExpiry(files, clock, logger);
    this.onStop(async () => stop());
  }

  /** Adds what `stop` calls, before all that was added earlier. */
  onStop(close: () => Promise<void>): void {
    this.#closing.push(close);
  }

  /**
   * Opens etcd's own API, without a request to etcd. `metrics`: those of the service, for a page; undefined: without that
   * page. Throws an Error with a sentence if a certificate or token is unusable.
   */
  openEtcdApi(metrics: MetricsSource | undefined): void {
    const { context } = this;
    const { data } = this.#given;
    const connect: ConnectInProcess = (member) => {
      if (this.#embedded === undefined) throw new Error("the embedded store is not open yet");
      return this.#embedded.connect(member);
    };
    const api = openEtcdApi(this.#given, context, data && connect);
    if (api === undefined) return;
    this.#etcdApi = api;
    this.#etcdPages = new EtcdPages(api, context, metrics);
    this.onStop(async () => api.close());
  }

  /**
   * Opens the embedded store, if the configuration has one: before `openCaches`. `onFailure` is called once, with a sentence, if
   * the process has to end since its file failed. Rejects with a StartError if the file can't be used.
   */
  async openStore(onFailure: (message: string) => void): Promise<void> {
    const { data } = this.#given;
    if (data === undefined) return;
    this.#pending = "the embedded store is loading";
    const store = await EmbeddedStore.open(data, this.#given, this.context, onFailure);
    this.#store = store;
    this.onStop(() => store.store.close());
  }

  /**
   * Opens the resources. A relay waits for its upstream, to know which ones. Rejects with a StartError if it can't follow
   * the upstream.
   */
  async openCaches(): Promise<void> {
    const { context } = this;
    const { meter } = context;
    const { upstream } = this.#given;
    const relay = upstream && (await openRelay(upstream, this.id, context));
    if (relay !== undefined) this.onStop(() => relay.close());
    this.#relay = relay;
    const { cacheDir } = this.#given;
    const user = cacheDir === undefined ? "" : await ownUser(this.#given);
    this.#config = await withRelayedResources(this.#given, user, relay, context, (why) => {
      this.#pending = why;
    });
    const folder = cacheDir && new CacheFolder(cacheDir, this.#config, user, context);
    const { observerOf: stagesOf, dispatchBuckets } = registerStageLatency(meter);
    this.#dispatchLatency = dispatchBuckets;
    const resources = new ProcessResources(this.#config, {
      ...{ context, relay, stagesOf, folder: folder || undefined },
      ...{ scheduler: this.#scheduler, upstreamLimiter: this.#upstreamLimiter },
      deepReads: this.#deepReads,
      embedded: this.#store?.store,
    });
    this.onStop(() => resources.close());
    this.#resources = resources;
    this.#serveEmbedded(resources);
    // With a user of its own the caches have what clients without a token may not read.
    const isOpen = this.#config.etcdApi?.next.auth === undefined;
    this.#etcdApi?.serve(resources.cachedResources(), isOpen);
    registerCacheMetrics(meter, resources.caches);
    registerUndecodableValues(meter, resources.readers);
    registerSkippedKeys(meter, resources.ofEtcd);
  }

  /**
   * Serves clients: recognises them, and applies the policy and the limits. Rejects with a StartError if the audit log can't
   * be opened or xDS can't be served, and with an Error if the server can't listen.
   */
  async serveClients({ listen, limits }: Omit<ServerTerms, "hasOwnServices">): Promise<void> {
    const { logger, files } = this.context;
    const { stallTimeoutMs, maxStreamAgeMs, tls, limits: configured, compression } = this.#config;
    const facing = openClientFacing(this.#config, this.context, (identity) =>
      this.#server?.revoke(identity),
    );
    this.onStop(() => facing.close());
    const xds = await openXds(this.#config, this.resources, this.context);
    this.#xds = xds;
    if (xds !== undefined) this.onStop(async () => xds.close());
    const maxConnections = acceptedConnections(configured.maxConnections);
    const all = {
      ...{ responseFlushMs: stallTimeoutMs, maxStreamAgeMs, ...configured, ...limits },
      maxConnections,
    };
    const doors = xds === undefined ? [] : [xds];
    await this.serve({ ...facing.options, listen, limits: all, compression, doors });
    xds?.start();
    warnOfFewConnections(configured.maxConnections, logger);
    if (tls !== undefined) watchServerCertificates(files, tls, this.server);
  }

  /** Starts the caches. Rejects with a StartError if etcd is unsupported. An unreachable etcd is not an error. */
  async begin(): Promise<void> {
    await this.resources.check();
    for (const cacher of this.caches.values()) cacher.start();
    void this.#relay?.follow(this.#given.resources.length > 0);
  }

  /**
   * Follows the members of etcd, and registers this service there, if the configuration has it. Of a service with workers the
   * main process does it.
   */
  followMembers(): void {
    const { clock, logger } = this.context;
    const { etcd: client } = this.resources;
    const { etcd, etcdApi } = this.#config;
    if (client === undefined) return;
    const intervalMs = (etcd ?? etcdApi?.next)?.syncIntervalMs;
    if (intervalMs !== undefined) {
      const apply = (endpoints: readonly string[]): void => {
        client.replaceMembers(endpoints);
        this.#etcdApi?.replaceMembers(endpoints);
      };
      const sync = new MemberSync({ client, intervalMs, apply, clock, logger });
      this.onStop(async () => sync.close());
    }
    const url = etcdApi?.advertiseClientUrl;
    if (etcdApi?.registration === undefined || url === undefined) return;
    const { prefix, ttlSeconds } = etcdApi.registration;
    const inNamespace = `${etcdApi.namespace ?? ""}${prefix}`;
    const options = { prefix: inNamespace, url, ttlSeconds };
    const registration = new Registration(client, options, clock, logger);
    this.#etcdApi?.nameRegistered(registration);
    registration.start();
    this.onStop(() => registration.close());
  }

  /** /readyz depends on the caches alone from now on. */
  started(): void {
    this.#pending = undefined;
  }

  /** Turns not ready, and closes everything, gracefully. Idempotent. */
  stop(): Promise<void> {
    this.#pending = "the service is shutting down";
    this.#stopped ??= this.#closeAll();
    return this.#stopped;
  }

  /**
   * Serves any client that can connect, with what `terms` has. Of those alone only workers must be able to: they may do
   * everything. Rejects with an Error if it can't listen.
   */
  async serve(terms: Omit<ServerOptions, "resources" | "clock" | "logger">): Promise<void> {
    const { resources, ownApi, memoryCeilingBytes, shutdownTimeoutMs } = this.#config;
    const { admin, identity, policy } = this.#config;
    // Requests for pages have no credential, so metrics are shown only where nothing else needs one.
    const needsCredential = [admin.tokenFile, identity.tokenFile, identity.jwt, policy].some(
      (source) => source !== undefined,
    );
    const { clock, logger, meter } = this.context;
    this.#rpcs = new RpcMetrics(meter, clock);
    const server = await startServer({
      hasOwnServices: ownApi,
      ...terms,
      ...{ rawServices: this.#etcdApi, pages: this.#etcdPages?.ofClientPort(!needsCredential) },
      ...{ resources: this.resources.served, store: this.resources.store, clock, logger },
      observer: this.#rpcs,
      tracer: this.#otlp?.tracer,
      memoryGauges: memoryGauges(memoryCeilingBytes),
      ...{ instanceId: this.instanceId, upstream: this.#relay },
      codecs: new Map(resources.map(({ name, codec }) => [name, codec.name])),
      etcdKeys: this.#config.etcdApi && this.resources.etcdKeys(),
    });
    this.#server = server;
    this.onStop(() => server.drain(shutdownTimeoutMs));
    registerServerMetrics(meter, server);
  }

  /** Serves etcd's API over the embedded store, for that of clients. */
  #serveEmbedded({ embedded: served }: ProcessResources): void {
    const { etcdApi } = this.#config;
    if (served === undefined || etcdApi === undefined) return;
    const { next, progressIntervalMs } = etcdApi;
    const historyKey = Buffer.from(next.historyKey);
    const { logger } = this.context;
    const clientUrl = (): string => this.#clientUrl();
    const embedded = new EtcdServer({ served, historyKey, clientUrl, progressIntervalMs, logger });
    this.#embedded = embedded;
    // Before the store.
    this.onStop(async () => embedded.close());
  }

  /** Where clients reach the service. */
  #clientUrl(): string {
    const { listen, tls, workers } = this.#config;
    // The workers have the address of clients.
    const address = workers > 1 ? listen : (this.#server?.address ?? listen);
    if ("path" in address) return `unix://${address.path}`;
    const { host, port } = address;
    const isAny = host === "0.0.0.0" || host === "::";
    const reached = formatAddress({ host: isAny ? hostname() : host, port });
    return `${tls === undefined ? "http" : "https"}://${reached}`;
  }

  /** Closes everything in reverse order. */
  async #closeAll(): Promise<void> {
    for (const close of this.#closing.splice(0).reverse()) await close();
  }
}

/** Maximum number of characters of the host's name in an id: error texts have the ids of several relays. */
const maxHostLength = 24;

/**
 * Returns an id of this process, such as `relay-7d4f-x2x9q.3f9a1c`: the host's name, which is the pod's in Kubernetes, and
 * random digits, since a host may have several.
 */
function newInstanceId(): string {
  const host = hostname().replaceAll(/[^\w.-]/g, "");
  return `${host.slice(-maxHostLength)}.${randomBytes(3).toString("hex")}`;
}
