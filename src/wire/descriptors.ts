import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Descriptors, readDescriptors } from "../protobuf/descriptors.ts";
import { protoFolder } from "./services.ts";

export type { Descriptors, FieldDescriptor, FileDescriptor } from "../protobuf/descriptors.ts";

/**
 * The descriptors of everything this server serves, out of the descriptor set that `buf build` writes.
 * They are read anew because those that proto-loader hands out are not whole: they lack imports, proto3
 * `optional` and which field is in which oneof (grpc-node issues 3018 and 3034).
 */
export const descriptors: Descriptors = readDescriptors(
  readFileSync(join(protoFolder, "watchfanout.binpb")),
);
