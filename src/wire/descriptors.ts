import { readFileSync } from "node:fs";
import { type Descriptors, readDescriptors } from "../protobuf/descriptors.ts";

export type { Descriptors, FieldDescriptor, FileDescriptor } from "../protobuf/descriptors.ts";

/**
 * The descriptors of everything that this server serves, from the descriptor set that `buf build` writes. Those of
 * proto-loader are incomplete: they lack imports, proto3 `optional`, and which oneof a field belongs to (grpc-node
 * issues 3018 and 3034).
 */
export const descriptors: Descriptors = readDescriptors(
  readFileSync(new URL("../../proto/watchfanout.binpb", import.meta.url)),
);
