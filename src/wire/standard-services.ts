import type { HealthDefinition } from "./generated/grpc/health/v1/Health.ts";
import type { ServerReflectionDefinition } from "./generated/grpc/reflection/v1/ServerReflection.ts";
import { definitions } from "./services.ts";

/** The standard health service of gRPC clients and load balancers. */
export const healthService = definitions["grpc.health.v1.Health"] as unknown as HealthDefinition;

/** Server reflection, by its name and the older one that many tools still use. */
export const reflectionServices = [
  "grpc.reflection.v1.ServerReflection",
  "grpc.reflection.v1alpha.ServerReflection",
].map((name) => definitions[name] as unknown as ServerReflectionDefinition);
