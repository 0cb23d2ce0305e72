import { createRequire } from "node:module";
import type { MethodDefinition, ServiceDefinition } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import type { Services } from "etcd3";
import type { RangeRequest, WatchRequest } from "./messages.ts";

/** etcd's API as etcd3's package declares it, loaded as etcd3's types describe it. */
const definitions = loadSync(createRequire(import.meta.url).resolve("etcd3/proto/rpc.proto"), {
  keepCase: true,
  longs: String,
  enums: String,
  defaults: true,
  oneofs: true,
});

/**
 * The gRPC method definition of an etcd call. `name` is in lower camel case, such as "leaseGrant".
 *
 * @throws Error if etcd3's package declares no such method
 */
export function methodOf(
  service: keyof typeof Services,
  name: string,
): MethodDefinition<unknown, unknown> {
  const methods = definitions[`etcdserverpb.${service}`] as unknown as ServiceDefinition;
  const found = Object.values(methods).find(({ originalName }) => originalName === name);
  if (found === undefined) throw new Error(`etcd3's rpc.proto has no ${service}.${name}.`);
  return found;
}

/** The two methods whose responses are decoded by hand: see responses.ts. */
export const rangeMethod = methodOf("KV", "range") as MethodDefinition<RangeRequest, unknown>;
export const watchMethod = methodOf("Watch", "watch") as MethodDefinition<WatchRequest, unknown>;
