import { readFileSync } from "node:fs";
import {
  createFileRegistry,
  type FileRegistry,
  fromBinary,
  fromJson,
  type JsonValue,
  toBinary,
} from "@bufbuild/protobuf";
import { type Any, AnySchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { messageOf } from "../base/errors.ts";
import { MessageCursor, WireFault } from "../protobuf/message-cursor.ts";
import type { XdsType } from "./types.ts";

/** The first byte of an object in JSON, and those of white space. */
const brace = 0x7b;
const spaces = [0x20, 0x09, 0x0a, 0x0d];

/** A value that can't be served. Its message is a sentence. */
export class InvalidValue extends Error {}

/** Reads stored values: each is a google.protobuf.Any, binary or in JSON, of one of the types that the descriptor set has. */
export class AnyTypes {
  readonly #registry: FileRegistry;

  /** Loads the descriptor set, which takes about 0.1 s. */
  constructor() {
    const set = readFileSync(new URL("../../proto/xds.binpb", import.meta.url));
    this.#registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, set));
  }

  /**
   * Returns a stored value as a binary Any: itself if it is one. Throws an InvalidValue for what is no valid message of the
   * type, or has another name than `key`.
   */
  read(type: XdsType, key: string, stored: Uint8Array): Uint8Array {
    const isJson = isJsonObject(stored);
    const any = isJson ? this.#parse(type, stored) : stored;
    const { typeUrl, value } = anyOf(any);
    if (typeUrl !== type.url) {
      throw new InvalidValue(
        `Its type is ${JSON.stringify(typeUrl)}, not ${JSON.stringify(type.url)}.`,
      );
    }
    // What was made of JSON is valid.
    if (!isJson) this.#check(type, value);
    const name = nameIn(value);
    if (name !== key) {
      throw new InvalidValue(
        `It is named ${JSON.stringify(name)}, and its key is ${JSON.stringify(key)}. Both have to be equal.`,
      );
    }
    return any;
  }

  #parse(type: XdsType, stored: Uint8Array): Uint8Array {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(stored);
      const json = JSON.parse(text) as JsonValue;
      const any = fromJson(AnySchema, json, { registry: this.#registry });
      return toBinary(AnySchema, any);
    } catch (error) {
      throw new InvalidValue(
        `It is not a google.protobuf.Any in JSON of a known type: ${presentable(type, error)}. Store types that this ` +
          "service does not know in binary.",
      );
    }
  }

  #check({ message }: XdsType, value: Uint8Array): void {
    const schema = this.#registry.getMessage(message);
    if (schema === undefined) throw new Error(`The descriptor set has no ${message}.`);
    try {
      fromBinary(schema, value);
    } catch (error) {
      throw new InvalidValue(`It is no valid ${message}: ${messageOf(error)}.`);
    }
  }
}

/** Why JSON is invalid. Of a secret only which field: errors cite values, and this is logged. */
function presentable({ name }: XdsType, error: unknown): string {
  const why = messageOf(error);
  if (name !== "sds") return why;
  return /^cannot decode (?:field|message) [\w.]+/.exec(why)?.[0] ?? "it can't be parsed";
}

/** A binary Any of a known type has the length of its type's URL second, which is neither white space nor a brace. */
function isJsonObject(stored: Uint8Array): boolean {
  return stored.find((byte) => !spaces.includes(byte)) === brace;
}

function anyOf(bytes: Uint8Array): Any {
  try {
    return fromBinary(AnySchema, bytes);
  } catch (error) {
    throw new InvalidValue(`It is neither JSON nor a google.protobuf.Any: ${messageOf(error)}.`);
  }
}

/** The name of a resource, which is field 1 of each type. */
function nameIn(value: Uint8Array): string {
  const cursor = new MessageCursor(value);
  let name = "";
  try {
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      if (tag === 0x0a) name = cursor.text();
      else cursor.skip(tag);
    }
  } catch (error) {
    // The library that has checked the value accepts numbers of more than 64 bits, which not every client does.
    if (!(error instanceof WireFault)) throw error;
    throw new InvalidValue(`Its value ${error.message}.`);
  }
  return name;
}
