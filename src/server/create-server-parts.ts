import type { Server } from "@grpc/grpc-js";
import { TimeSliceScheduler } from "../base/time-slices.ts";
import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import { CallPipeline } from "./call-pipeline.ts";
import { Authentication } from "./calls/authentication.ts";
import type { CallContext } from "./calls/call-context.ts";
import { FullStore } from "./calls/full-store.ts";
import { type Methods, type ServeUnary, servedMethods } from "./calls/methods.ts";
import { endingWithdrawn, revokeOnChange } from "./calls/revocation.ts";
import { serveUnary } from "./calls/unary-call.ts";
import { createCallContext } from "./create-call-context.ts";
import { addToGrpcJs } from "./grpc-js/grpc-js-fallback.ts";
import {
  createGrpcJsServer,
  type ServerCertificates,
  serverCertificates,
} from "./grpc-js/grpc-js-server.ts";
import { CancelledCalls } from "./http2/cancelled-calls.ts";
import { Connections } from "./http2/connections.ts";
import { OpenCalls } from "./http2/open-calls.ts";
import { VerifiedPeers } from "./http2/verified-peers.ts";
import { HandshakeFailures } from "./limits/handshake-failures.ts";
import { Http2Defences } from "./limits/http2-defences.ts";
import { defaultServerLimits, type ServerLimits } from "./limits/server-limits.ts";
import { createServerPools, type ServerPools } from "./limits/server-pools.ts";
import { SlowClients } from "./limits/slow-clients.ts";
import { MemoryPressure } from "./pressure/memory-pressure.ts";
import { SlowStreams } from "./pressure/slow-streams.ts";
import { addressOf, type ServerOptions } from "./server-options.ts";
import { HealthService } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { initialStatuses, mayKnowService, ServingStatuses } from "./services/serving-statuses.ts";
import { watchHandler } from "./services/watch-handler.ts";
import { writeMethods } from "./services/write-service.ts";

/** What a server is made of. */
export interface ServerParts {
  readonly limits: ServerLimits;
  readonly pools: ServerPools;
  readonly memoryPressure: MemoryPressure;
  readonly defences: Http2Defences;
  readonly handshakes: HandshakeFailures;
  readonly slowClients: SlowClients;
  readonly fullStore: FullStore;
  readonly connections: Connections;
  readonly openCalls: OpenCalls;
  readonly health: HealthService;
  readonly statuses: ServingStatuses;
  readonly reflection: ReflectionService;
  readonly pipeline: CallPipeline;
  readonly inFlight: CallContext["inFlight"];
  readonly certificates: ServerCertificates | undefined;
  /** Present if clients have certificates. */
  readonly verifiedPeers: VerifiedPeers | undefined;
  /** Not bound to an address. */
  readonly grpcJs: Server;
}

/** Makes a server's parts, and connects them. Throws an Error with a sentence if a certificate or key is unusable. */
export function createServerParts(options: ServerOptions): ServerParts {
  const { resources, clock, logger, observer, authenticators, relayed, now = Date.now } = options;
  const { hasOwnServices = true } = options;
  const certificates = options.tls && serverCertificates(options.tls);
  const limits = { ...defaultServerLimits, ...options.limits };
  // Each connection enqueues at most one task, its stream openings, so none is ever refused.
  const scheduler = new TimeSliceScheduler(clock, Infinity);
  const pools = createServerPools(clock, limits, now, logger);
  const { streams, sendBudget, callerLimits } = pools;
  const handshakes = new HandshakeFailures(clock, logger, "gRPC");
  const defences = new Http2Defences(clock, logger, limits, handshakes);
  const slowClients = new SlowClients(clock, logger);
  const fullStore = new FullStore(clock, logger);
  const isUnix = "path" in addressOf(options.listen);
  const connections = new Connections(clock, { ...limits, isUnix }, defences);
  const memoryPressure = new MemoryPressure({
    ...{ clock, logger, gauges: options.memoryGauges ?? [], retained: pools.retainedRequests },
    slowStreams: new SlowStreams(clock, streams, sendBudget),
  });
  const shared = createCallContext(options, limits, pools, scheduler);
  const context = { ...shared, memoryPressure, defences, slowClients, fullStore };
  const { authorizer, inFlight, callClosings } = context;
  const openCalls = new OpenCalls(clock, callClosings, connections, observer, relayed);
  const mayKnow = mayKnowService(authorizer, hasOwnServices);
  const health = new HealthService(initialStatuses(resources), { ...pools, slowClients }, mayKnow);
  const statuses = new ServingStatuses(resources, health);
  const reflection = new ReflectionService(descriptors, hasOwnServices, context);
  revokeOnChange(authorizer, streams, clock);
  authorizer.onChange(() => health.recheck());
  const methods = methodsOf(context, hasOwnServices, health, reflection);
  const authentication = authenticators && new Authentication(authenticators, context);
  const cancelledCalls = new CancelledCalls({ clock, limits, callerLimits, defences });
  const pipeline = new CallPipeline({
    ...{ methods, context, openCalls, authentication, relayed, cancelledCalls },
  });
  const clientCa = options.tls?.clientCa;
  const onWithdrawn = endingWithdrawn(authentication, pools, context);
  const verifiedPeers = clientCa && new VerifiedPeers({ clock, now, clientCa, onWithdrawn });
  const trustsForwarders = authentication?.trustsForwarders === true;
  const grpcJs = createGrpcJsServer(clock, limits, pools.requests, trustsForwarders);
  const services = [listWatchService, writeService, healthService, ...reflectionServices];
  for (const service of services) addToGrpcJs(grpcJs, service, methods, context, authentication);
  return {
    ...{ limits, pools, memoryPressure, defences, handshakes, slowClients, fullStore },
    ...{ connections, openCalls },
    ...{ health, statuses, reflection, pipeline, inFlight, certificates, verifiedPeers, grpcJs },
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
