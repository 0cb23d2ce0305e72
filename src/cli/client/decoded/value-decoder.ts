import { isUtf8 } from "node:buffer";
import { readFile } from "node:fs/promises";
import { loadFileDescriptorSetFromBuffer } from "@grpc/proto-loader";
import { invalidRequest, messageOf } from "../../../base/errors.ts";
import type { ResourceInfo } from "../../../client/resource-info.ts";
import { type Json, maxValueDepth } from "./json-path.ts";

/** Decodes a value. Returns undefined if it can't. */
type Decode = (value: Uint8Array) => Json | undefined;

/** How the values of protobuf resources are decoded. */
export interface MessageOptions {
  /** A file with a google.protobuf.FileDescriptorSet. */
  readonly descriptors?: string;
  /** Full names of message types by resource; `""`: those of the other resources. */
  readonly message?: ReadonlyMap<string, string>;
}

/** Decodes the values of one resource by its codec. */
export class ValueDecoder {
  readonly #decode: Decode;
  readonly #mayBeText: boolean;

  constructor(decode: Decode, mayBeText: boolean) {
    this.#decode = decode;
    this.#mayBeText = mayBeText;
  }

  /**
   * What a document has of a value: `value` if the codec can decode it or it is text, otherwise `value_base64`. A value that
   * can't be decoded never fails a command. Bytes of a message are never text, even if they look like one.
   */
  valueFields(value: Uint8Array): { readonly [name: string]: Json } {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    const decoded = this.#decode(bytes);
    if (decoded !== undefined && !isDeeper(decoded, maxValueDepth)) return { value: decoded };
    if (this.#mayBeText && isUtf8(bytes)) return { value: bytes.toString() };
    return { value_base64: bytes.toString("base64") };
  }
}

/**
 * The decoder of a resource's values. The service says which codec a resource has, and only the user has the types of
 * protobuf messages. Throws INVALID_REQUEST if they can't be read.
 */
export async function valueDecoder(
  resource: string,
  info: ResourceInfo | undefined,
  { descriptors, message }: MessageOptions,
): Promise<{ readonly decoder: ValueDecoder; readonly warning: string | undefined }> {
  const name = message?.get(resource) ?? message?.get("");
  if (descriptors !== undefined && name !== undefined) {
    const decode = messageDecode(await descriptorsIn(descriptors), descriptors, name);
    return { decoder: new ValueDecoder(decode, false), warning: undefined };
  }
  const codec = info?.codec;
  const decode = codec === "protobuf" ? undecoded : codec === "json" ? parsed : parsedContainer;
  const warning =
    codec === "protobuf"
      ? `The values of ${resource} are protobuf messages, and not decoded: that needs --descriptors and --message.`
      : undefined;
  return { decoder: new ValueDecoder(decode, codec !== "protobuf"), warning };
}

function undecoded(): undefined {
  return undefined;
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function parsed(value: Uint8Array): Json | undefined {
  try {
    return JSON.parse(utf8.decode(value), exactNumber) as Json;
  } catch {
    return undefined;
  }
}

const openBrace = 0x7b;
const openBracket = 0x5b;

/** The values of an opaque resource are shown as JSON if they are objects or lists. Anything else is more likely a text. */
function parsedContainer(value: Uint8Array): Json | undefined {
  return value[0] === openBrace || value[0] === openBracket ? parsed(value) : undefined;
}

/** Keeps all digits of whole numbers that a number can't hold. */
function exactNumber(_: string, value: unknown, context?: { readonly source?: string }): unknown {
  if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
  const source = context?.source ?? "";
  return /^-?\d+$/.test(source) ? BigInt(source) : value;
}

function isDeeper(value: Json, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((part) => isDeeper(part, levels - 1));
}

async function descriptorsIn(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw invalidRequest("descriptors", `--descriptors can't be read: ${messageOf(error)}.`);
  }
}

/** Decodes messages to their form in JSON: names as in the .proto file, 64-bit numbers as text, enums by name. */
function messageDecode(descriptors: Buffer, path: string, name: string): Decode {
  let types: ReturnType<typeof loadFileDescriptorSetFromBuffer>;
  try {
    types = loadFileDescriptorSetFromBuffer(descriptors, {
      ...{ keepCase: true, longs: String, enums: String, bytes: String },
    });
  } catch (error) {
    throw invalidRequest(
      "descriptors",
      `${path} is not a descriptor set: ${messageOf(error)}. Write one with "buf build -o FILE.binpb".`,
    );
  }
  const type = types[name];
  if (type === undefined || !("deserialize" in type) || typeof type.deserialize !== "function") {
    throw invalidRequest("message", `${path} has no message type ${JSON.stringify(name)}.`);
  }
  const { deserialize } = type;
  return (value) => {
    try {
      return deserialize(Buffer.from(value)) as Json;
    } catch {
      return undefined;
    }
  };
}
