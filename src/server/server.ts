import type { Server } from "@grpc/grpc-js";
import type { Logger } from "pino";
import type { Clock, Timer } from "../base/clock.ts";
import { tooManyRequestBytes } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import { CallPipeline } from "./call-pipeline.ts";
import type { CallContext, RpcObserver, ServedResource } from "./calls/call-context.ts";
import { type Methods, servedMethods } from "./calls/methods.ts";
import { StreamOpenings } from "./calls/stream-openings.ts";
import { addToGrpcJs } from "./grpc-js/grpc-js-fallback.ts";
import { bindServer, createGrpcJsServer, type TlsOptions } from "./grpc-js/grpc-js-server.ts";
import { Connections } from "./http2/connections.ts";
import { listenToHttp2 } from "./http2/http2-stream.ts";
import { OpenCalls } from "./http2/open-calls.ts";
import { defaultServerLimits, type ServerLimits } from "./limits/server-limits.ts";
import { createServerPools, type ServerPools, type ServerStats } from "./limits/server-pools.ts";
import { HealthService } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { initialStatuses, ServingStatuses } from "./services/serving-statuses.ts";
import { writeMethods } from "./services/write-service.ts";

export type { RpcObserver, ServedResource } from "./calls/call-context.ts";
export type { TlsOptions } from "./grpc-js/grpc-js-server.ts";
export type { PoolStats, ServerStats } from "./limits/server-pools.ts";

export interface ServerOptions {
  /** The resources by name. The server drains them, but neither starts nor closes them. */
  readonly resources: ReadonlyMap<string, ServedResource>;
  /** With port 0 the operating system picks a free port. */
  readonly listen: { readonly host: string; readonly port: number };
  /** Without it, connections are plain text. */
  readonly tls?: TlsOptions | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer?: RpcObserver | undefined;
  /** Default: `defaultServerLimits`. */
  readonly limits?: Partial<ServerLimits> | undefined;
  /** Random numbers in [0, 1), for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * Starts a server. It serves calls when this resolves. Rejects with an Error that says why if the certificate or key is
 * unusable, or if the address is in use or not one of this machine.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const server = new RunningServer(options);
  await server.listen();
  return server;
}

/** Serves ListWatchService, WriteService, health and reflection on one port. */
export class RunningServer {
  readonly #options: ServerOptions;
  readonly #endFlushMs: number;
  readonly #server: Server;
  readonly #pools: ServerPools;
  readonly #connections: Connections;
  readonly #openCalls: OpenCalls;
  readonly #health: HealthService;
  readonly #statuses: ServingStatuses;
  readonly #reflection: ReflectionService;
  readonly #pipeline: CallPipeline;
  #port = 0;
  #drained: Promise<void> | undefined;

  /** For `startServer`. */
  constructor(options: ServerOptions) {
    const { resources, clock, observer } = options;
    const limits = { ...defaultServerLimits, ...options.limits };
    // Each connection enqueues at most one task, its stream openings, so none is ever refused.
    const scheduler = new TimeSliceScheduler(clock, Infinity);
    this.#options = options;
    this.#endFlushMs = limits.endFlushMs;
    this.#pools = createServerPools(clock, limits);
    this.#connections = new Connections(clock, limits);
    this.#openCalls = new OpenCalls(clock, this.#connections, observer);
    const context = createCallContext(options, limits, this.#pools, scheduler);
    const { streams, stallDetector } = this.#pools;
    this.#health = new HealthService(initialStatuses(resources), streams, stallDetector);
    this.#statuses = new ServingStatuses(resources, this.#health);
    this.#reflection = new ReflectionService(descriptors, context);
    const methods = methodsOf(context, this.#health, this.#reflection);
    const openCalls = this.#openCalls;
    this.#pipeline = new CallPipeline({ methods, context, openCalls });
    this.#server = createGrpcJsServer(clock, limits);
    const services = [listWatchService, writeService, healthService, ...reflectionServices];
    for (const service of services) addToGrpcJs(this.#server, service, methods, context);
  }

  get host(): string {
    return this.#options.listen.host;
  }

  /** The port that was bound, also if the options have port 0. */
  get port(): number {
    return this.#port;
  }

  /** Number of open streams: watches, health watches, reflection. */
  get openStreams(): number {
    return this.#pools.streams.size;
  }

  /** Number of open connections. */
  get connections(): number {
    return this.#connections.size;
  }

  /** What the server holds for its clients now. */
  stats(): ServerStats {
    const { streams, requests, retainedRequests, sendBudget } = this.#pools;
    return {
      connections: this.#connections.size,
      streams: streams.size,
      requests,
      retained: retainedRequests,
      unsent: sendBudget,
    };
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { listen, tls, logger } = this.#options;
    this.#port = await bindServer(this.#server, listen, tls);
    const listening = listenToHttp2(this.#server, {
      stream: (stream, headers) => this.#pipeline.accept(stream, headers),
      connection: (socket) => this.#connections.add(socket),
      session: (session) => this.#connections.begun(session),
      error: (error) => logger.error({ err: error }, "the gRPC port failed to accept a connection"),
    });
    if (listening === 0) {
      logger.warn(
        "Unsupported grpc-js version: direct HTTP/2 serving and call metrics are disabled, and idle " +
          "clients can delay shutdown.",
      );
    }
  }

  /**
   * Shuts down: health turns to NOT_SERVING, streams get a last bookmark and DRAINING, connections a GOAWAY, and open
   * calls finish. After `withinMs` milliseconds the remaining calls are cut off. Connections without a call are closed
   * after `endFlushMs`. Resolves when all connections are closed. Later calls return the first call's promise.
   */
  drain(withinMs: number): Promise<void> {
    this.#drained ??= this.#drain(withinMs);
    return this.#drained;
  }

  async #drain(withinMs: number): Promise<void> {
    this.#statuses.drain();
    this.#health.end();
    this.#reflection.end();
    for (const resource of this.#options.resources.values()) resource.drain();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    this.#server.tryShutdown(() => resolve());
    const { clock } = this.#options;
    const bound = clock.setTimeout(() => {
      this.#server.forceShutdown();
      // grpc-js waits indefinitely for a session that was destroyed just before grpc-js would close it.
      void this.#connections.cut().then(resolve);
    }, withinMs);
    const unread = clock.setTimeout(() => this.#pipeline.refuseUnread(), this.#endFlushMs);
    // A client that has sent nothing, or too little to receive the GOAWAY, would never close its connection.
    let flush: Timer | undefined;
    this.#openCalls.onIdle(() => {
      flush ??= clock.setTimeout(() => void this.#connections.cut(), this.#endFlushMs);
    });
    await closed;
    bound.cancel();
    unread.cancel();
    flush?.cancel();
  }
}

/** What all calls of the server share. */
function createCallContext(
  options: ServerOptions,
  limits: ServerLimits,
  pools: ServerPools,
  scheduler: TimeSliceScheduler,
): CallContext {
  const { resources, clock, logger, observer, random = Math.random } = options;
  const { retainedRequests } = pools;
  const tooMuchRetained = () => tooManyRequestBytes(limits.maxRetainedRequestBytesPerConnection);
  return {
    resources,
    clock,
    logger,
    observer,
    endFlushMs: limits.endFlushMs,
    responseFlushMs: limits.responseFlushMs,
    requestMs: limits.requestMs,
    maxRequestBytes: limits.maxRequestBytes,
    requestPool: pools.requests,
    maxUnreadBytesPerConnection: limits.maxUnreadBytesPerConnection,
    sendBudget: pools.sendBudget,
    stallDetector: pools.stallDetector,
    streams: pools.streams,
    streamOpenings: new StreamOpenings(scheduler, retainedRequests, tooMuchRetained),
    parsingSelectors: new TimeSliceScheduler(clock),
    retainedRequests,
    tooMuchRetained,
    maxStreamAgeMs: limits.maxStreamAgeMs,
    random,
  };
}

/** The methods of all services. */
function methodsOf(
  context: CallContext,
  health: HealthService,
  reflection: ReflectionService,
): Methods {
  return {
    single: new Map([
      ...servedMethods(listWatchService, listWatchMethods(context)),
      ...servedMethods(writeService, writeMethods(context)),
      ...servedMethods(healthService, health.handlers),
    ]),
    streaming: new Map(reflectionServices.flatMap((service) => [...reflection.serving(service)])),
  };
}
