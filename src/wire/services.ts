import { fromJSON } from "@grpc/proto-loader";
import { protoJson } from "./generated/proto-json.ts";
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
