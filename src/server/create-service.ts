import { descriptors } from "../wire/descriptors.ts";
import { listWatchService, writeService } from "../wire/services.ts";
import { healthService, reflectionServices } from "../wire/standard-services.ts";
import { Authentication } from "./calls/authentication.ts";
import { type Methods, type ServeUnary, servedMethods } from "./calls/methods.ts";
import { revokeOnChange } from "./calls/revocation.ts";
import { createServiceContext, type ServiceContext } from "./calls/service-context.ts";
import type { ServiceOptions } from "./calls/service-options.ts";
import { serveUnary } from "./calls/unary-call.ts";
import type { Http2Defences } from "./limits/http2-defences.ts";
import { HealthService } from "./services/health-service.ts";
import { listWatchMethods } from "./services/list-watch-service.ts";
import { ReflectionService } from "./services/reflection-service.ts";
import { initialStatuses, mayKnowService, ServingStatuses } from "./services/serving-statuses.ts";
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

/** Makes what serves calls. `defences` count clients that are stopped on connections of the server's own. */
export function createService(options: ServiceOptions, defences?: Http2Defences): Service {
  const { resources, authenticators, hasOwnServices = true } = options;
  const context = createServiceContext(options, defences);
  const { authorizer, clock, streams } = context;
  const mayKnow = mayKnowService(authorizer, hasOwnServices);
  const health = new HealthService(initialStatuses(resources), context, mayKnow);
  const statuses = new ServingStatuses(resources, health);
  const reflection = new ReflectionService(descriptors, hasOwnServices, context);
  revokeOnChange(authorizer, streams, clock);
  authorizer.onChange(() => health.recheck());
  return {
    context,
    methods: methodsOf(context, hasOwnServices, health, reflection),
    authentication: authenticators && new Authentication(authenticators, context),
    drain: () => {
      statuses.drain();
      health.end();
      reflection.end();
      for (const resource of resources.values()) resource.drain();
    },
  };
}

/** The methods of all services. */
function methodsOf(
  context: ServiceContext,
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
