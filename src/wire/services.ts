import { fromJSON } from "@grpc/proto-loader";
import type { HealthDefinition } from "./generated/grpc/health/v1/Health.ts";
import type { ServerReflectionDefinition } from "./generated/grpc/reflection/v1/ServerReflection.ts";
import { protoJson } from "./generated/proto-json.ts";
import type { LeaseServiceDefinition } from "./generated/watchfanout/v1/LeaseService.ts";
import type { ListWatchServiceDefinition } from "./generated/watchfanout/v1/ListWatchService.ts";
import type { WriteServiceDefinition } from "./generated/watchfanout/v1/WriteService.ts";

/**
 * All services and messages, as the generated types describe them: names as in the proto, int64 as decimal strings,
 * enums by name, every field present, and the name of the field that is set in a oneof.
 */
export const definitions = fromJSON(protoJson as Parameters<typeof fromJSON>[0], {
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});

export const listWatchService = definitions[
  "watchfanout.v1.ListWatchService"
] as unknown as ListWatchServiceDefinition;

export const writeService = definitions[
  "watchfanout.v1.WriteService"
] as unknown as WriteServiceDefinition;

export const leaseService = definitions[
  "watchfanout.v1.LeaseService"
] as unknown as LeaseServiceDefinition;

/** The standard health service of gRPC clients and load balancers. */
export const healthService = definitions["grpc.health.v1.Health"] as unknown as HealthDefinition;

/** Server reflection, by its name and the older one that many tools still use. */
export const reflectionServices = [
  "grpc.reflection.v1.ServerReflection",
  "grpc.reflection.v1alpha.ServerReflection",
].map((name) => definitions[name] as unknown as ServerReflectionDefinition);
