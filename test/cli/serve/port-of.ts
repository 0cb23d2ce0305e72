import type { Service } from "../../../src/cli/serve/main-process.ts";

/** The gRPC port of a service that listens on TCP. */
export function portOf({ grpc }: Pick<Service, "grpc">): number {
  if ("path" in grpc) throw new Error(`The service listens on ${grpc.path}.`);
  return grpc.port;
}
