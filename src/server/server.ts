import { X509Certificate } from "node:crypto";
import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import { createSecureContext } from "node:tls";
import { Server, ServerCredentials, status } from "@grpc/grpc-js";
import type { Logger } from "pino";
import { type Clock, maxTimerMs, type Timer } from "../base/clock.ts";
import { tooManyRequestBytes } from "../base/errors.ts";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import {
  type CallContext,
  methodOf,
  type RpcObserver,
  type ServedResource,
} from "./calls/call-context.ts";
import { servedMethods } from "./calls/served-methods.ts";
import { StreamOpenings } from "./calls/stream-openings.ts";
import { addToGrpcJs, boundRequestTime } from "./grpc-js/grpc-js-fallback.ts";
import { CallArrivals } from "./http2/call-arrivals.ts";
import { Connections } from "./http2/connections.ts";
import { DirectCalls, type Methods } from "./http2/direct-calls.ts";
import { boundHttp2, listenToHttp2, refuseStream, statusCodeOf } from "./http2/http2-stream.ts";
import { areTooLarge, dropDistantDeadline, maxHeaderBytes } from "./http2/request-headers.ts";
import { StreamPacing } from "./http2/stream-pacing.ts";
import { BytePool } from "./limits/byte-pool.ts";
import { OpenStreams } from "./limits/open-streams.ts";
import { SendBudget } from "./limits/send-budget.ts";
import { defaultServerLimits, type ServerLimits } from "./limits/server-limits.ts";
import { StallDetector } from "./limits/stall-detector.ts";
import { HealthService, type ServingStatus } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { writeMethods } from "./services/write-service.ts";

export type { RpcObserver, ServedResource } from "./calls/call-context.ts";

export interface ServerOptions {
  /** What is served, by name. The server drains them, but neither starts nor closes them. */
  readonly resources: ReadonlyMap<string, ServedResource>;
  /** Port 0 takes any that is free. */
  readonly listen: { readonly host: string; readonly port: number };
  /** In PEM. With `clientCa`, clients need a certificate that it has signed. Without tls: plain text. */
  readonly tls?:
    | {
        readonly cert: Buffer;
        readonly key: Buffer;
        readonly clientCa?: Buffer | undefined;
      }
    | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly observer?: RpcObserver | undefined;
  readonly limits?: Partial<ServerLimits> | undefined;
  /** Numbers from 0 up to 1, for jitter. Default: Math.random. */
  readonly random?: (() => number) | undefined;
}

/**
 * Listens, and serves from then on. Rejects with an Error that says why if it can't: the certificate
 * or key is no good, the address is taken or not one of this machine.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const server = new RunningServer(options);
  await server.listen();
  return server;
}

const listWatch = "watchfanout.v1.ListWatchService";
const write = "watchfanout.v1.WriteService";

/** What clients make a server hold. */
export interface ServerStats {
  readonly connections: number;
  /** Calls that last: watches, health watches, reflection. */
  readonly streams: number;
  /** Requests that have not come whole, or are not served yet. */
  readonly requests: PoolStats;
  /** What streams, and reads that are not answered, keep of their requests. */
  readonly kept: PoolStats;
  /** Answers and watch frames that clients have not accepted; memory that several share counts once. */
  readonly unsent: PoolStats;
}

/** A bounded pool of memory. */
export interface PoolStats {
  /** Held now. */
  readonly bytes: number;
  /** How many calls have lost what they held, to make room. */
  readonly evictions: number;
}

/** ListWatchService, WriteService, health and reflection on one port. */
export class RunningServer {
  readonly #options: ServerOptions;
  readonly #server: Server;
  readonly #health: HealthService;
  readonly #reflection: ReflectionService;
  readonly #stallDetector: StallDetector;
  readonly #requestPool: BytePool;
  readonly #kept: BytePool;
  readonly #sendBudget: SendBudget;
  readonly #directCalls: DirectCalls;
  readonly #streams: OpenStreams;
  readonly #pacing: StreamPacing;
  readonly #arrivals: CallArrivals;
  readonly #connections: Connections;
  readonly #endFlushMs: number;
  #openCalls = 0;
  /** While the server drains: is called when no call is open any more. */
  #onIdle: (() => void) | undefined;
  #port = 0;
  #wasReady = false;
  #drained: Promise<void> | undefined;

  /** For `startServer`. */
  constructor(options: ServerOptions) {
    this.#options = options;
    const { resources, clock, logger, observer } = options;
    const limits = { ...defaultServerLimits, ...options.limits };
    this.#endFlushMs = limits.endFlushMs;
    this.#stallDetector = new StallDetector(clock, limits.responseFlushMs);
    this.#streams = new OpenStreams(limits.maxStreams);
    this.#kept = new BytePool({
      maxBytes: limits.maxRetainedRequestBytes,
      maxBytesPerOwner: limits.maxRetainedRequestBytesPerConnection,
    });
    this.#requestPool = new BytePool({
      maxBytes: limits.maxUnreadBytes,
      maxBytesPerOwner: limits.maxUnreadBytesPerConnection,
    });
    const tooMuchRetained = () => tooManyRequestBytes(limits.maxRetainedRequestBytesPerConnection);
    // One task for each connection at the most: none is ever refused.
    const turns = new TimeSliceScheduler(clock, Infinity);
    const streamOpenings = new StreamOpenings(turns, this.#kept, tooMuchRetained);
    this.#arrivals = new CallArrivals(clock, (stream, headers) => this.#take(stream, headers));
    this.#pacing = new StreamPacing(
      clock,
      (session) => this.#arrivals.waiting(session) + streamOpenings.waiting(session),
    );
    this.#connections = new Connections(clock, limits);
    this.#sendBudget = new SendBudget(clock, {
      maxBytes: limits.maxUnsentBytes,
      maxBytesPerConnection: limits.maxUnsentBytesPerConnection,
    });
    const context: CallContext = {
      resources,
      clock,
      logger,
      observer,
      endFlushMs: limits.endFlushMs,
      responseFlushMs: limits.responseFlushMs,
      requestMs: limits.requestMs,
      maxRequestBytes: limits.maxRequestBytes,
      requestPool: this.#requestPool,
      maxUnreadBytesPerConnection: limits.maxUnreadBytesPerConnection,
      sendBudget: this.#sendBudget,
      stallDetector: this.#stallDetector,
      streams: this.#streams,
      streamOpenings,
      parsingSelectors: new TimeSliceScheduler(clock),
      retainedRequests: this.#kept,
      tooMuchRetained,
      maxStreamAgeMs: limits.maxStreamAgeMs,
      random: options.random ?? Math.random,
    };
    this.#health = new HealthService(this.#initialHealth(), this.#streams, this.#stallDetector);
    this.#reflection = new ReflectionService(descriptors, context);
    this.#server = new Server({
      "grpc.enable_channelz": 0,
      "grpc.max_receive_message_length": limits.maxRequestBytes,
      "grpc.max_concurrent_streams": limits.maxStreamsPerConnection,
      // Only of calls that are left to grpc-js, which are none in a version that is known here.
      interceptors: [boundRequestTime(clock, limits.requestMs)],
      "grpc.keepalive_time_ms": limits.keepaliveTimeMs,
      "grpc.keepalive_timeout_ms": limits.keepaliveTimeoutMs,
      ...(limits.maxStreamAgeMs > 0 && {
        // grpc-js adds up to a tenth, and its timer must not overflow.
        "grpc.max_connection_age_ms": Math.min(limits.maxStreamAgeMs, 0.9 * maxTimerMs),
      }),
    });
    boundHttp2(this.#server, {
      resetBurst: limits.maxStreamsPerConnection,
      resetsPerSecond: limits.maxCancelsPerSecond,
      headerBytes: maxHeaderBytes,
    });
    const methods: Methods = {
      single: new Map([
        ...servedMethods(listWatchService, listWatchMethods(context)),
        ...servedMethods(writeService, writeMethods(context)),
        ...servedMethods(healthService, this.#health.handlers),
      ]),
      streaming: new Map(
        reflectionServices.flatMap((service) => [...this.#reflection.serving(service)]),
      ),
    };
    this.#directCalls = new DirectCalls(methods, context);
    const services = [listWatchService, writeService, healthService, ...reflectionServices];
    for (const service of services) addToGrpcJs(this.#server, service, methods, context);
  }

  get host(): string {
    return this.#options.listen.host;
  }

  /** The port that was bound, if 0 was asked for. */
  get port(): number {
    return this.#port;
  }

  /** Calls that are open and last: watches, health watches, reflection. */
  get openStreams(): number {
    return this.#streams.size;
  }

  /** How many connections are open. */
  get connections(): number {
    return this.#connections.size;
  }

  /** What clients take of it now. */
  stats(): ServerStats {
    return {
      connections: this.#connections.size,
      streams: this.#streams.size,
      requests: this.#requestPool,
      kept: this.#kept,
      unsent: this.#sendBudget,
    };
  }

  /** For `startServer`. */
  async listen(): Promise<void> {
    const { host, port } = this.#options.listen;
    const address = host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
    const credentials = this.#credentials();
    this.#port = await new Promise<number>((resolve, reject) => {
      this.#server.bindAsync(address, credentials, (error, bound) => {
        if (error === null) resolve(bound);
        else reject(new Error(`Can't listen on ${address}: ${error.message}`, { cause: error }));
      });
    });
    const { logger } = this.#options;
    const listening = listenToHttp2(this.#server, {
      stream: (stream, headers) => this.#onStream(stream, headers),
      connection: (socket) => this.#connections.add(socket),
      session: (session) => this.#connections.begun(session),
      error: (error) => logger.error({ err: error }, "the gRPC port failed to take a connection"),
    });
    if (listening === 0) {
      logger.warn(
        "Unsupported grpc-js version: direct HTTP/2 serving and call metrics are disabled, and idle " +
          "clients can delay shutdown.",
      );
    }
  }

  /**
   * Shuts down: health turns to NOT_SERVING, streams get a last bookmark and DRAINING, connections a
   * GOAWAY, and calls that have begun finish. What is left after `withinMs` is cut off, and connections
   * that no call holds open are not waited for. Resolves when all connections are closed. Later calls
   * join the first.
   */
  drain(withinMs: number): Promise<void> {
    this.#drained ??= this.#drain(withinMs);
    return this.#drained;
  }

  async #drain(withinMs: number): Promise<void> {
    this.#health.set("", "NOT_SERVING");
    this.#health.set(listWatch, "NOT_SERVING");
    this.#health.end();
    this.#reflection.end();
    for (const resource of this.#options.resources.values()) resource.drain();
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    this.#server.tryShutdown(() => resolve());
    const { clock } = this.#options;
    const bound = clock.setTimeout(() => {
      this.#server.forceShutdown();
      // grpc-js waits for ever for a session that was destroyed just before it was to close it.
      void this.#connections.cut().then(resolve);
    }, withinMs);
    const unread = clock.setTimeout(() => {
      this.#directCalls.refuseUnread();
    }, this.#endFlushMs);
    // Whoever has said nothing, or not enough to be told of the end, would never close by itself.
    let flush: Timer | undefined;
    this.#onIdle = () => {
      flush ??= clock.setTimeout(() => void this.#connections.cut(), this.#endFlushMs);
    };
    if (this.#openCalls === 0) this.#onIdle();
    await closed;
    bound.cancel();
    unread.cancel();
    flush?.cancel();
  }

  #initialHealth(): Map<string, ServingStatus> {
    const statuses = new Map<string, ServingStatus>([
      ["", "NOT_SERVING"],
      [listWatch, "NOT_SERVING"],
      [write, "SERVING"],
    ]);
    for (const [name, resource] of this.#options.resources) {
      statuses.set(`resource/${name}`, resource.ready ? "SERVING" : "NOT_SERVING");
      resource.onReadyChange((ready) => {
        this.#health.set(`resource/${name}`, ready ? "SERVING" : "NOT_SERVING");
        this.#checkReady();
      });
    }
    if (this.#allReady()) {
      this.#wasReady = true;
      statuses.set("", "SERVING").set(listWatch, "SERVING");
    }
    return statuses;
  }

  /** From the first sync of all caches on, the service as a whole counts as usable. */
  #checkReady(): void {
    if (this.#wasReady || this.#drained !== undefined || !this.#allReady()) return;
    this.#wasReady = true;
    this.#health.set("", "SERVING");
    this.#health.set(listWatch, "SERVING");
  }

  #allReady(): boolean {
    return [...this.#options.resources.values()].every((resource) => resource.ready);
  }

  #credentials(): ServerCredentials {
    const { tls } = this.#options;
    if (tls === undefined) return ServerCredentials.createInsecure();
    const { cert, key, clientCa } = tls;
    checkUsable("certificate or key", () => createSecureContext({ cert, key }));
    // Node.js takes a CA that is none, and would then refuse every client.
    if (clientCa !== undefined) checkUsable("client CA", () => new X509Certificate(clientCa));
    const pairs = [{ cert_chain: cert, private_key: key }];
    return ServerCredentials.createSsl(clientCa ?? null, pairs, clientCa !== undefined);
  }

  #onStream(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    if (stream.session !== undefined) this.#pacing.opened(stream.session as ServerHttp2Session);
    if (areTooLarge(headers)) {
      refuseStream(stream);
      return;
    }
    this.#arrivals.add(stream, headers);
  }

  /** Counts the call, and serves it. */
  #take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders): void {
    dropDistantDeadline(headers);
    this.#openCalls++;
    const onEnded = this.#observe(stream, headers[":path"] ?? "");
    const { session } = stream;
    const onClosed = session === undefined ? undefined : this.#connections.opened(session);
    stream.on("close", () => {
      onClosed?.();
      this.#openCalls--;
      if (this.#openCalls === 0) this.#onIdle?.();
      onEnded?.();
    });
    this.#directCalls.take(stream, headers);
  }

  /** Tells the observer of a call, and returns what is to be called when it is closed. */
  #observe(stream: ServerHttp2Stream, path: string): (() => void) | undefined {
    const { observer, clock } = this.#options;
    if (observer === undefined) return undefined;
    // A client may ask for any method; those that there are not are counted as one.
    const method = descriptors.inputs.has(path) ? methodOf(path) : "unknown";
    const started = clock.now();
    observer.started(method);
    return () => {
      const code = status[statusCodeOf(stream) ?? status.CANCELLED] ?? "UNKNOWN";
      observer.ended(method, code, clock.now() - started);
    };
  }
}

/** Throws what `parse` throws, in a sentence. */
function checkUsable(what: string, parse: () => unknown): void {
  try {
    parse();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new Error(`The TLS ${what} can't be used: ${why}`, { cause: error });
  }
}
