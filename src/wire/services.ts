import { fileURLToPath } from "node:url";
import { type AnyDefinition, loadSync } from "@grpc/proto-loader";
import type { ListWatchServiceDefinition } from "./generated/watchfanout/v1/ListWatchService.ts";
import type { WriteServiceDefinition } from "./generated/watchfanout/v1/WriteService.ts";

/** The folder of the protos and their descriptor set, next to `src/` as well as `dist/`. */
export const protoFolder = fileURLToPath(new URL("../../proto/", import.meta.url));

/**
 * Loads protos as the generated types describe them: names as in the proto, int64 as decimal strings, enums by name,
 * every field present, and the name of the field that is set in a oneof.
 */
export function loadProtos(...files: readonly string[]): Record<string, AnyDefinition> {
  return loadSync([...files], {
    keepCase: true,
    longs: String,
    enums: String,
    defaults: true,
    oneofs: true,
    includeDirs: [protoFolder],
  });
}

const definitions = loadProtos(
  "watchfanout/v1/list_watch_service.proto",
  "watchfanout/v1/write_service.proto",
);

export const listWatchService = definitions[
  "watchfanout.v1.ListWatchService"
] as unknown as ListWatchServiceDefinition;

export const writeService = definitions[
  "watchfanout.v1.WriteService"
] as unknown as WriteServiceDefinition;
