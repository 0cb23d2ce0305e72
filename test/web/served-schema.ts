import { readFileSync } from "node:fs";
import { createFileRegistry, type DescService, fromBinary } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

/** The descriptors of what this service serves, for clients of Connect. */
export const registry = createFileRegistry(
  fromBinary(
    FileDescriptorSetSchema,
    readFileSync(new URL("../../proto/watchfanout.binpb", import.meta.url)),
  ),
);

export const listWatchSchema = serviceNamed("watchfanout.v1.ListWatchService");
export const writeSchema = serviceNamed("watchfanout.v1.WriteService");

function serviceNamed(name: string): DescService {
  const found = registry.getService(name);
  if (found === undefined) throw new Error(`There is no service ${name}.`);
  return found;
}
