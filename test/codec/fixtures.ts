import { spawnSync } from "node:child_process";
import { type AnyDefinition, loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";

const folder = "test/codec/fixtures";

/** The descriptor set of all protos in `fixtures/`, as users would build it. */
export function buildDescriptors(...flags: readonly string[]): Buffer {
  const args = ["build", folder, "--as-file-descriptor-set", "--output", "-#format=binpb"];
  return buf([...args, ...flags]);
}

/** Encodes a message in protobuf's JSON form with an independent implementation. */
export function convert(type: string, json: unknown): Buffer {
  const formats = ["--from", "-#format=json", "--to", "-#format=binpb"];
  return buf(["convert", folder, "--type", type, ...formats], JSON.stringify(json));
}

function buf(args: readonly string[], input: string = ""): Buffer {
  const { status, stdout, stderr, error } = spawnSync("node_modules/.bin/buf", args, { input });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`buf ${args.join(" ")} failed: ${stderr.toString()}`);
  return stdout;
}

/** Encodes quickly, for property tests: names as in the proto, longs as decimal strings. */
export function encoder(type: string): (message: object) => Buffer {
  const options = { keepCase: true, longs: String, enums: String, defaults: true };
  const definition: AnyDefinition | undefined = loadSync(`${folder}/lease.proto`, options)[type];
  if (definition?.format !== "Protocol Buffer 3 DescriptorProto") throw new Error(`no ${type}`);
  return (definition as MessageTypeDefinition<object, object>).serialize;
}
