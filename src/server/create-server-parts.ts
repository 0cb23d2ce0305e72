import { tooManyRequestBytes } from "../base/errors.ts";
import { Turns } from "../base/turns.ts";
import { Authorizer } from "../policy/authorizer.ts";
import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import { CallPipeline } from "./call-pipeline.ts";
import { Authentication } from "./calls/authentication.ts";
import { CallClosings } from "./calls/call-closings.ts";
import type { CallContext } from "./calls/call-context.ts";
import { FullStore } from "./calls/full-store.ts";
import { type Methods, type ServeUnary, servedMethods } from "./calls/methods.ts";
import { RequestsInFlight } from "./calls/requests-in-flight.ts";
import { endingWithdrawn, revokeOnChange } from "./calls/revocation.ts";
import { StreamOpenings } from "./calls/stream-openings.ts";
import { serveUnary } from "./calls/unary-call.ts";
import { Connections } from "./http2/connections.ts";
import { socketOf } from "./http2/frames/framed-connection.ts";
import { OpenCalls } from "./http2/open-calls.ts";
import { peerNameOf } from "./http2/peer.ts";
import { VerifiedPeers } from "./http2/verified-peers.ts";
import { HandshakeFailures } from "./limits/handshake-failures.ts";
import { Http2Defences } from "./limits/http2-defences.ts";
import { defaultServerLimits, type ServerLimits } from "./limits/server-limits.ts";
import { createServerPools, type ServerPools } from "./limits/server-pools.ts";
import { SlowClients } from "./limits/slow-clients.ts";
import { Listener } from "./listener/listener.ts";
import { MemoryPressure } from "./pressure/memory-pressure.ts";
import { SlowStreams } from "./pressure/slow-streams.ts";
import { addressOf, type ServerOptions, type ServiceOptions } from "./server-options.ts";
import { HealthService } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { initialStatuses, mayKnowService, ServingStatuses } from "./services/serving-statuses.ts";
import { watchHandler } from "./services/watch-handler.ts";
import { writeMethods } from "./services/write-service.ts";

/** What serves calls, whatever accepts them. */
export interface ServiceParts {
  readonly limits: ServerLimits;
  readonly pools: ServerPools;
  readonly memoryPressure: MemoryPressure;
  readonly slowClients: SlowClients;
  readonly fullStore: FullStore;
  readonly health: HealthService;
  readonly statuses: ServingStatuses;
  readonly reflection: ReflectionService;
  readonly context: CallContext;
  readonly methods: Methods;
  /** Undefined: all calls are anonymous. */
  readonly authentication: Authentication | undefined;
}

/** What a server is made of that accepts connections itself. */
export interface ServerParts extends ServiceParts {
  readonly defences: Http2Defences;
  readonly handshakes: HandshakeFailures;
  readonly connections: Connections;
  readonly openCalls: OpenCalls;
  readonly pipeline: CallPipeline;
  /** Present if clients have certificates. */
  readonly verifiedPeers: VerifiedPeers | undefined;
  /** Does not listen yet. */
  readonly listener: Listener;
}

/** Makes what serves calls, and connects it. `defences` count clients that are stopped. */
export function createServiceParts(
  options: ServiceOptions,
  defences?: Http2Defences,
): ServiceParts {
  const { resources, clock, logger, authenticators, now = Date.now } = options;
  const { hasOwnServices = true } = options;
  const limits = { ...defaultServerLimits, ...options.limits };
  // The streams that wait to be opened are bounded as calls, so none is ever refused here.
  const scheduler = new Turns(clock, Infinity);
  const pools = createServerPools(clock, limits, now, logger);
  const { streams, sendBudget } = pools;
  const slowClients = new SlowClients(clock, logger);
  const fullStore = new FullStore(clock, logger);
  const memoryPressure = new MemoryPressure({
    ...{ clock, logger, gauges: options.memoryGauges ?? [], retained: pools.retainedRequests },
    slowStreams: new SlowStreams(clock, streams, sendBudget),
  });
  const shared = createCallContext(options, limits, pools, scheduler);
  const context = { ...shared, memoryPressure, defences, slowClients, fullStore };
  const { authorizer } = context;
  const mayKnow = mayKnowService(authorizer, hasOwnServices);
  const health = new HealthService(initialStatuses(resources), { ...pools, slowClients }, mayKnow);
  const statuses = new ServingStatuses(resources, health);
  const reflection = new ReflectionService(descriptors, hasOwnServices, context);
  revokeOnChange(authorizer, streams, clock);
  authorizer.onChange(() => health.recheck());
  const methods = methodsOf(context, hasOwnServices, health, reflection);
  const authentication = authenticators && new Authentication(authenticators, context);
  return {
    ...{ limits, pools, memoryPressure, slowClients, fullStore },
    ...{ health, statuses, reflection, context, methods, authentication },
  };
}

/** Ends what lasts as long as the service: streams get a last bookmark and DRAINING. */
export function drainService(parts: ServiceParts, { relayed, resources }: ServiceOptions): void {
  parts.statuses.drain();
  parts.health.end();
  parts.reflection.end();
  relayed?.drain();
  for (const resource of resources.values()) resource.drain();
}

/** Makes a server's parts, and connects them. Throws an Error with a sentence if a certificate or key is unusable. */
export function createServerParts(options: ServerOptions): ServerParts {
  const { clock, logger, observer, relayed, now = Date.now, random = Math.random } = options;
  const limits = { ...defaultServerLimits, ...options.limits };
  const handshakes = new HandshakeFailures(clock, logger, "gRPC");
  const defences = new Http2Defences(clock, logger, limits, handshakes);
  const service = createServiceParts(options, defences);
  const { pools, context, methods, authentication } = service;
  const isUnix = "path" in addressOf(options.listen);
  const connections = new Connections(clock, { ...limits, isUnix }, defences);
  const openCalls = new OpenCalls(clock, context.callClosings, connections, observer, relayed);
  const pipeline = new CallPipeline({ methods, context, openCalls, authentication, relayed });
  const clientCa = options.tls?.clientCa;
  const onWithdrawn = endingWithdrawn(authentication, pools, context);
  const verifiedPeers = clientCa && new VerifiedPeers({ clock, now, clientCa, onWithdrawn });
  const { callers } = pools.callerLimits;
  const listener = new Listener({
    ...{ clock, logger, random, limits, connections, defences, handshakes },
    ...{ tls: options.tls, pages: options.pages },
    isForwarder: (facts) => authentication?.isForwarder(facts) === true,
    listener: {
      begun: (session, acceptedAt) => {
        const socket = socketOf(session);
        verifiedPeers?.add(session, acceptedAt);
        callers.connected(session, socket.remoteAddress);
        session.once("close", () => callers.closed(session));
        defences.watch(session, peerNameOf(socket));
        pipeline.begin(session);
      },
      opened: (...opened) => pipeline.accept(...opened),
    },
  });
  return {
    ...service,
    ...{ defences, handshakes, connections, openCalls, pipeline, verifiedPeers, listener },
  };
}

/** The methods of all services. */
function methodsOf(
  context: CallContext,
  hasOwnServices: boolean,
  health: HealthService,
  reflection: ReflectionService,
): Methods {
  const serve: ServeUnary = (name, method) => serveUnary(context, name, method);
  const own = hasOwnServices
    ? [
        ...servedMethods(listWatchService, listWatchMethods(context, watchHandler(context)), serve),
        ...servedMethods(writeService, writeMethods(context), serve),
      ]
    : [];
  return {
    single: new Map([...own, ...servedMethods(healthService, health.handlers, serve)]),
    streaming: new Map(reflectionServices.flatMap((service) => [...reflection.serving(service)])),
  };
}

/** Maximum size of the writes that the store is processing, in bytes. */
const maxWriteBytes = 64 * 1024 ** 2;

/** What all calls of the server share. */
function createCallContext(
  options: ServiceOptions,
  limits: ServerLimits,
  pools: ServerPools,
  scheduler: Turns,
): CallContext {
  const { resources, clock, logger, observer, audit, random = Math.random } = options;
  const { retainedRequests, callerLimits } = pools;
  const { maxReadsInFlight, maxWritesInFlight, maxUnreadBytesPerConnection } = limits;
  const waiting = {
    ...{ clock, limits, callerLimits, maxUnreadBytesPerConnection },
    requestPool: pools.requests,
  };
  const tooMuchRetained = () => tooManyRequestBytes(limits.maxRetainedRequestBytesPerConnection);
  return {
    resources,
    instanceId: options.instanceId,
    upstream: options.upstream,
    codecs: options.codecs,
    clock,
    logger,
    observer,
    tracer: options.tracer,
    authorizer: options.authorizer ?? new Authorizer(),
    credentials: pools.credentials,
    audit,
    endFlushMs: limits.endFlushMs,
    responseFlushMs: limits.responseFlushMs,
    requestMs: limits.requestMs,
    maxRequestBytes: limits.maxRequestBytes,
    requestPool: pools.requests,
    incompleteCalls: pools.incompleteCalls,
    maxUnreadBytesPerConnection,
    sendBudget: pools.sendBudget,
    stallDetector: pools.stallDetector,
    callerLimits,
    inFlight: {
      reads: new RequestsInFlight(waiting, {
        ...{ kind: "reads", maxRequests: maxReadsInFlight, maxBytes: Infinity },
      }),
      writes: new RequestsInFlight(waiting, {
        ...{ kind: "writes", maxRequests: maxWritesInFlight, maxBytes: maxWriteBytes },
      }),
    },
    streams: pools.streams,
    callClosings: new CallClosings(clock),
    streamOpenings: new StreamOpenings(clock, scheduler, retainedRequests, tooMuchRetained),
    parsingSelectors: new Turns(clock),
    retainedRequests,
    tooMuchRetained,
    maxStreamAgeMs: limits.maxStreamAgeMs,
    random,
  };
}
