import type { Socket } from "node:net";
import type { Server } from "@grpc/grpc-js";
import type { CertificateStore } from "../base/certificate-store.ts";
import type { Timer } from "../base/clock.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import type { Identity } from "../identity/identity.ts";
import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import { CallPipeline } from "./call-pipeline.ts";
import { Authentication } from "./calls/authentication.ts";
import type { CallContext } from "./calls/call-context.ts";
import { drainConnections } from "./calls/drain-connections.ts";
import { type Methods, servedMethods } from "./calls/methods.ts";
import { revokeOnChange } from "./calls/revocation.ts";
import { endingWithdrawn } from "./calls/withdrawal.ts";
import { createCallContext } from "./create-call-context.ts";
import { addToGrpcJs } from "./grpc-js/grpc-js-fallback.ts";
import {
  type Bound,
  bindServer,
  createGrpcJsServer,
  type ServerCertificates,
  serverCertificates,
  type TcpListen,
  type TlsOptions,
  type UnixListen,
} from "./grpc-js/grpc-js-server.ts";
import { CancelledCalls } from "./http2/cancelled-calls.ts";
import { Connections } from "./http2/connections.ts";
import { negotiateHttp1 } from "./http2/http2-stream.ts";
import { OpenCalls } from "./http2/open-calls.ts";
import { VerifiedPeers } from "./http2/verified-peers.ts";
import { type AttackKind, Http2Defences } from "./limits/http2-defences.ts";
import type { OpenStream } from "./limits/open-streams.ts";
import { defaultServerLimits, type ServerLimits } from "./limits/server-limits.ts";
import { createServerPools, type HeldStats, type ServerPools } from "./limits/server-pools.ts";
import { MemoryPressure, type PressureStats } from "./pressure/memory-pressure.ts";
import { SlowStreams } from "./pressure/slow-streams.ts";
import { serveConnections } from "./serve-connections.ts";
import type { ServerOptions } from "./server-options.ts";
import { HealthService } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { initialStatuses, mayKnowService, ServingStatuses } from "./services/serving-statuses.ts";
import { writeMethods } from "./services/write-service.ts";

export type { AuditEntry, AuditLevel, AuditLog } from "./calls/audit.ts";
export type {
  RelayedUpstream,
  RpcObserver,
  ServedResource,
} from "./calls/call-context.ts";
export type { CallSpan, CallTracer, TraceHeaders } from "./calls/call-span.ts";
export type {
  ClientAuth,
  TcpListen,
  TlsOptions,
  UnixListen,
} from "./grpc-js/grpc-js-server.ts";
export type { AttackKind } from "./limits/http2-defences.ts";
export type { HeldStats, PoolStats } from "./limits/server-pools.ts";
export type { MemoryGauge, MemoryLimit, MemoryReading } from "./pressure/memory-gauge.ts";
export type { PressureLevel, PressureStats, ShedKind } from "./pressure/memory-pressure.ts";

export type { Framing, ServerOptions } from "./server-options.ts";

/** What a server holds for its clients, and how short memory is. */
export interface ServerStats extends HeldStats {
  /** How short memory is, and what was shed for that. */
  readonly pressure: PressureStats;
  /** Requests that are handled, and those that wait. */
  readonly inFlight: Readonly<
    Record<"reads" | "writes", { readonly size: number; readonly queued: number }>
  >;
  /** Number of times that clients were stopped at the level of HTTP/2, by kind. */
  readonly attacks: ReadonlyMap<AttackKind, number>;
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
  readonly #limits: ServerLimits;
  readonly #server: Server;
  readonly #pools: ServerPools;
  readonly #memoryPressure: MemoryPressure;
  readonly #defences: Http2Defences;
  readonly #connections: Connections;
  readonly #openCalls: OpenCalls;
  readonly #health: HealthService;
  readonly #statuses: ServingStatuses;
  readonly #reflection: ReflectionService;
  readonly #pipeline: CallPipeline;
  readonly #inFlight: CallContext["inFlight"];
  readonly #certificates: ServerCertificates | undefined;
  readonly #verifiedPeers: VerifiedPeers | undefined;
  #bound: Bound | undefined;
  #drained: Promise<void> | undefined;

  /** For `startServer`. */
  constructor(options: ServerOptions) {
    const { resources, clock, observer, authenticators, relayed, now = Date.now } = options;
    const limits = { ...defaultServerLimits, ...options.limits };
    // Each connection enqueues at most one task, its stream openings, so none is ever refused.
    const scheduler = new TimeSliceScheduler(clock, Infinity);
    this.#options = options;
    this.#certificates = options.tls && serverCertificates(options.tls);
    this.#limits = limits;
    this.#pools = createServerPools(clock, limits, now, options.logger);
    this.#defences = new Http2Defences(clock, options.logger, limits);
    const isUnix = "path" in addressOf(options.listen);
    this.#connections = new Connections(clock, { ...limits, isUnix }, this.#defences);
    const { streams, sendBudget } = this.#pools;
    this.#memoryPressure = new MemoryPressure({
      ...{ clock, logger: options.logger, gauges: options.memoryGauges ?? [] },
      slowStreams: new SlowStreams(clock, streams, sendBudget),
      retained: this.#pools.retainedRequests,
    });
    const context = {
      ...createCallContext(options, limits, this.#pools, scheduler),
      ...{ memoryPressure: this.#memoryPressure, defences: this.#defences },
    };
    const openCalls = new OpenCalls(
      clock,
      context.callClosings,
      this.#connections,
      observer,
      relayed,
    );
    this.#openCalls = openCalls;
    const { authorizer } = context;
    this.#inFlight = context.inFlight;
    const mayKnow = mayKnowService(authorizer);
    this.#health = new HealthService(initialStatuses(resources), this.#pools, mayKnow);
    this.#statuses = new ServingStatuses(resources, this.#health);
    this.#reflection = new ReflectionService(descriptors, context);
    revokeOnChange(authorizer, streams, clock);
    authorizer.onChange(() => this.#health.recheck());
    const methods = methodsOf(context, this.#health, this.#reflection);
    const authentication =
      authenticators === undefined ? undefined : new Authentication(authenticators, context);
    const { callerLimits } = this.#pools;
    const cancelledCalls = new CancelledCalls({
      ...{ clock, limits, callerLimits, defences: this.#defences },
    });
    this.#pipeline = new CallPipeline({
      ...{ methods, context, openCalls, authentication, relayed, cancelledCalls },
    });
    const clientCa = options.tls?.clientCa;
    const onWithdrawn = endingWithdrawn(authentication, this.#pools, context);
    this.#verifiedPeers = clientCa && new VerifiedPeers({ clock, now, clientCa, onWithdrawn });
    const trustsForwarders = authentication?.trustsForwarders === true;
    this.#server = createGrpcJsServer(clock, limits, this.#pools.requests, trustsForwarders);
    const services = [listWatchService, writeService, healthService, ...reflectionServices];
    for (const service of services) {
      addToGrpcJs(this.#server, service, methods, context, authentication);
    }
  }

  /** Where it listens, with the port that was bound. */
  get address(): TcpListen | UnixListen {
    const address = addressOf(this.#options.listen);
    return "path" in address ? address : { host: address.host, port: this.port };
  }

  /** The port that was bound, also if the options have port 0. Without meaning for a Unix socket. */
  get port(): number {
    return this.#bound?.port ?? 0;
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
      pressure: this.#memoryPressure.stats(),
      attacks: this.#defences.counts,
      callers: this.#pools.callerLimits.stats(),
      inFlight: this.#inFlight,
    };
  }

  /**
   * The open streams, for operators. Those that are opened or end while this is read may or may not be among them.
   *
   * @internal
   */
  get streams(): Iterable<OpenStream> {
    return this.#pools.streams;
  }

  /** Serves a connection that another process has accepted. Only with `acceptedAt` in `listen`. */
  accept(socket: Socket): void {
    if (this.#drained !== undefined || this.#bound?.take === undefined) socket.destroy();
    else this.#bound.take(socket);
  }

  /**
   * Ends the oldest connections gracefully, at most `count`, so that their clients connect again: with GOAWAY, and their
   * streams with DRAINING and their resume points. Their calls finish.
   */
  drainOldest(count: number): void {
    const sessions = this.#connections.takeOldest(count);
    drainConnections(sessions, this.#pools.streams, this.#options.clock);
  }

  /** Ends the streams of an identity whose credential is no longer accepted, with UNAUTHENTICATED. */
  revoke(identity: Identity): void {
    this.#pools.authenticatedStreams.revoke(identity);
  }

  /**
   * Replaces the certificate and its key. Open connections keep theirs. Throws an Error with a sentence if the new ones
   * are unusable, or if the server has no TLS.
   */
  replaceCertificate(pair: Pick<TlsOptions, "cert" | "key">): void {
    this.#tlsStore().replacePair(pair);
  }

  /**
   * Replaces the authorities of client certificates. Open connections whose certificate is of none of them end, and their
   * streams with UNAUTHENTICATED. Throws an Error with a sentence if the new ones are unusable, or without TLS.
   */
  replaceClientCa(clientCa: Buffer): void {
    this.#tlsStore().replaceAuthorities(clientCa);
    this.#verifiedPeers?.replaceAuthorities(clientCa);
  }

  #tlsStore(): CertificateStore {
    if (this.#certificates === undefined) throw new Error("The server has no TLS.");
    return this.#certificates.store;
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { listen, clock, pages } = this.#options;
    if (pages !== undefined) negotiateHttp1(this.#server);
    try {
      this.#bound = await bindServer(this.#server, listen, this.#certificates, clock);
    } catch (error) {
      this.#memoryPressure.stop();
      throw error;
    }
    this.#memoryPressure.start();
    try {
      serveConnections(this.#server, {
        ...{ options: this.#options, limits: this.#limits, pools: this.#pools },
        ...{ certificates: this.#certificates, verifiedPeers: this.#verifiedPeers },
        ...{ connections: this.#connections, defences: this.#defences, pipeline: this.#pipeline },
      });
    } catch (error) {
      this.#memoryPressure.stop();
      this.#server.forceShutdown();
      throw error;
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
    this.#options.relayed?.drain();
    for (const resource of this.#options.resources.values()) resource.drain();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    // Before another process may take the path.
    this.#bound?.socketFile?.remove();
    // A server that does not accept connections itself does not wait for their end either.
    const others = this.#bound?.take === undefined ? undefined : this.#connections.closed();
    this.#server.tryShutdown(() => void Promise.resolve(others).then(resolve));
    const { clock } = this.#options;
    const bound = clock.setTimeout(() => {
      this.#server.forceShutdown();
      // grpc-js waits indefinitely for a session that was destroyed just before grpc-js would close it.
      void this.#connections.cut().then(resolve);
    }, withinMs);
    const unread = clock.setTimeout(() => this.#pipeline.refuseUnread(), this.#limits.endFlushMs);
    // A client that has sent nothing, or too little to receive the GOAWAY, would never close its connection.
    let flush: Timer | undefined;
    this.#openCalls.onIdle(() => {
      flush ??= clock.setTimeout(() => void this.#connections.cut(), this.#limits.endFlushMs);
    });
    await closed;
    this.#memoryPressure.stop();
    bound.cancel();
    unread.cancel();
    flush?.cancel();
  }
}

function addressOf(listen: ServerOptions["listen"]): TcpListen | UnixListen {
  return "acceptedAt" in listen ? listen.acceptedAt : listen;
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
