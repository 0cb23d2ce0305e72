import type { ServiceDefinition } from "@grpc/grpc-js";
import { descriptors } from "../wire/descriptors.ts";
import {
  healthService,
  leaseService,
  listWatchService,
  reflectionServices,
  writeService,
} from "../wire/services.ts";
import { Authentication } from "./calls/authentication.ts";
import { revokeOnChange } from "./calls/authorization.ts";
import {
  type Door,
  decoderOf,
  type MethodHandler,
  type Methods,
  methodOf,
  type ServiceMethods,
  type SingleRequestMethod,
  type UnaryMethod,
} from "./calls/methods.ts";
import { createServiceContext, type ServiceContext } from "./calls/service-context.ts";
import type { ServiceOptions } from "./calls/service-options.ts";
import { serveUnary } from "./calls/unary-call.ts";
import type { Http2Defences } from "./limits/http2-defences.ts";
import type { RefusedKind } from "./pressure/memory-pressure.ts";
import { HealthService } from "./services/health-service.ts";
import { LeaseService } from "./services/leases/lease-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { SubscribeService } from "./services/subscribe/subscribe-service.ts";
import { watchHandler } from "./services/watch-handler.ts";
import { writeMethods } from "./services/write-service.ts";

/** What serves calls, whatever accepts them. */
export interface Service {
  readonly context: ServiceContext;
  readonly methods: Methods;
  /** Undefined: all calls are anonymous. */
  readonly authentication: Authentication | undefined;
  /** Health turns to NOT_SERVING, and what lasts ends: watches get a last bookmark and DRAINING. */
  drain(): void;
}

/**
 * Makes what serves calls. `defences` count clients that are stopped on connections of the server's own. `doors` are served beside
 * its own services.
 */
export function createService(
  options: ServiceOptions,
  defences?: Http2Defences,
  doors?: readonly Door[],
): Service {
  const { resources, authenticators } = options;
  const context = createServiceContext(options, defences);
  const { authorizer, clock, streams } = context;
  const health = new HealthService(context);
  const reflection = new ReflectionService(descriptors, context);
  const subscribe = new SubscribeService(context);
  const leases = options.store && new LeaseService(context, options.store.leases);
  revokeOnChange(authorizer, streams, clock);
  authorizer.onChange(() => health.recheck());
  return {
    context,
    methods: methodsOf(context, doors, { health, reflection, subscribe, leases }),
    authentication: authenticators && new Authentication(authenticators, context),
    drain: () => {
      health.drain();
      reflection.end();
      for (const resource of resources.values()) resource.drain();
      subscribe.drain();
      leases?.keepAlive.drain();
      for (const door of doors ?? []) door.drain();
      context.grantedLeases.stop();
    },
  };
}

/**
 * What a call counts as when memory is short, by the path of its method. The others are not refused: health has to respond,
 * since an orchestrator would end a process whose health does not.
 */
const refusedKinds: ReadonlyMap<string, RefusedKind> = new Map([
  [listWatchService.Watch.path, "stream"],
  [listWatchService.List.path, "list"],
  [listWatchService.Get.path, "call"],
  [listWatchService.BatchGet.path, "list"],
  [listWatchService.History.path, "list"],
  [listWatchService.Resources.path, "call"],
  [writeService.Put.path, "call"],
  [writeService.Delete.path, "call"],
  [writeService.DeletePrefix.path, "call"],
  [writeService.Transact.path, "call"],
  [leaseService.Grant.path, "call"],
  [leaseService.TimeToLive.path, "call"],
]);

/** This service's own services. */
interface Services {
  readonly health: HealthService;
  readonly reflection: ReflectionService;
  readonly subscribe: SubscribeService;
  readonly leases: LeaseService | undefined;
}

/** The methods of all services. */
function methodsOf(
  context: ServiceContext,
  doors: readonly Door[] | undefined,
  { health, reflection, subscribe, leases }: Services,
): Methods {
  const listWatch = listWatchMethods(context, watchHandler(context));
  const own = context.hasOwnServices
    ? [
        ...servedMethods(context, listWatchService, listWatch),
        ...servedMethods(context, writeService, writeMethods(context)),
        ...(leases === undefined ? [] : servedMethods(context, leaseService, leases.methods)),
      ]
    : [];
  const streaming = new Map(
    reflectionServices.flatMap((service) => [...reflection.serving(service)]),
  );
  if (context.hasOwnServices) {
    streaming.set(listWatchService.Subscribe.path, subscribe.method);
    if (leases !== undefined) streaming.set(leaseService.KeepAlive.path, leases.keepAlive.method);
  }
  for (const door of doors ?? []) {
    for (const [path, method] of door.methods(context)) streaming.set(path, method);
  }
  return {
    single: new Map([...own, ...servedMethods(context, healthService, health.handlers)]),
    streaming,
  };
}

/** The methods of a service with one request, by their path. Throws if one of them is missing. */
function servedMethods(
  context: ServiceContext,
  service: ServiceDefinition,
  methods: ServiceMethods,
): Map<string, SingleRequestMethod> {
  const served = new Map<string, SingleRequestMethod>();
  for (const [key, { path, requestStream, responseStream }] of Object.entries(service)) {
    if (requestStream) continue;
    const method = methods[key] as MethodHandler<unknown> | UnaryMethod<unknown> | undefined;
    if (method === undefined) throw new Error(`The method ${path} has no handler.`);
    const name = methodOf(path);
    const handler = "perform" in method ? serveUnary(context, name, method) : method;
    const facts = { name, isStreaming: responseStream, sheds: refusedKinds.get(path) };
    served.set(path, { ...facts, decode: decoderOf(path), ...handler });
  }
  return served;
}
