import { spawnSync } from "node:child_process";
import { globSync } from "node:fs";
import { type AnyDefinition, loadSync, type MessageTypeDefinition } from "@grpc/proto-loader";

const folder = "test/codec/fixtures";
/** The program for this machine: the script that npm links starts it from one more Node.js, which takes thrice its CPU time. */
const [program = "node_modules/.bin/buf"] = globSync("node_modules/@bufbuild/buf-*/bin/buf");

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

/** Decodes a message to protobuf's JSON form in the same way. */
export function convertBack(type: string, message: Uint8Array): unknown {
  const formats = ["--from", "-#format=binpb", "--to", "-#format=json"];
  return JSON.parse(buf(["convert", folder, "--type", type, ...formats], message).toString());
}

function buf(args: readonly string[], input: string | Uint8Array = ""): Buffer {
  const { status, stdout, stderr, error } = spawnSync(program, args, { input });
  if (error !== undefined) throw error;
  if (status !== 0) throw new Error(`buf ${args.join(" ")} failed: ${stderr.toString()}`);
  return stdout;
}

/** Encodes quickly, for property tests: names as in the proto, longs as decimal strings. */
export function encoder(type: string): (message: object) => Buffer {
  return definitionOf(type).serialize;
}

/** Decodes quickly what an encoder has written: only the fields that are set. */
export function decoder(type: string): (message: Buffer) => object {
  return definitionOf(type, { defaults: false }).deserialize;
}

function definitionOf(type: string, others: object = {}): MessageTypeDefinition<object, object> {
  const options = { keepCase: true, longs: String, enums: String, defaults: true, ...others };
  const definition: AnyDefinition | undefined = loadSync(`${folder}/lease.proto`, options)[type];
  if (definition?.format !== "Protocol Buffer 3 DescriptorProto") throw new Error(`no ${type}`);
  return definition as MessageTypeDefinition<object, object>;
}
