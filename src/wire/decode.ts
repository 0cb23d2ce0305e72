import { invalidRequest, type WatchFanoutError } from "../errors.ts";
import { LENGTH_DELIMITED, VARINT, WireFault, WireReader } from "../protobuf/wire-reader.ts";
import { descriptors, type FieldDescriptor } from "./descriptors.ts";

/** A request, or what is wrong with its bytes. */
export type Decoded<T> =
  | { readonly request: T; readonly fault: undefined }
  | { readonly request: undefined; readonly fault: WatchFanoutError };

/**
 * Makes a deserialiser for requests of a type, given by its full name. It never throws, since grpc-js
 * makes an INTERNAL of that, and gives the very object that proto-loader would, but only for bytes that
 * are right. protobufjs reads whatever it gets: text that is not UTF-8 turns into U+FFFD, so that two
 * different keys become one, a length beyond the end is cut to what is there, and of a oneof that is set
 * twice the first field in the proto wins instead of the last on the wire.
 *
 * Throws for a type with fields that no request of ours has: repeated ones, maps, floats, fixed sizes.
 */
export function strictDeserializer<T>(typeName: string): (bytes: Uint8Array) => Decoded<T> {
  const type = messageRule(typeName);
  return (bytes) => {
    const path: string[] = [];
    try {
      const request: Message = { ...type.defaults };
      decodeInto(request, bytes, type, path);
      return { request: request as T, fault: undefined };
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      const field = path.join(".");
      const where = field === "" ? "The request" : `The field ${field}`;
      const message = `${where} ${error.message}. Send a ${typeName} as its proto describes it.`;
      return { request: undefined, fault: invalidRequest(field, message) };
    }
  };
}

type Message = Record<string, unknown>;

interface MessageRule {
  readonly fields: ReadonlyMap<number, FieldRule>;
  readonly defaults: Readonly<Message>;
}

interface FieldRule {
  readonly name: string;
  readonly wireType: number;
  readonly read: (reader: WireReader, before: unknown, path: string[]) => unknown;
  readonly oneof: string | undefined;
  /** The other fields of its oneof. */
  readonly rivals: readonly string[];
}

function decodeInto(target: Message, bytes: Uint8Array, type: MessageRule, path: string[]): void {
  const reader = new WireReader(bytes);
  while (reader.next()) {
    const rule = type.fields.get(reader.field);
    if (rule === undefined) {
      reader.skip();
      continue;
    }
    path.push(rule.name);
    if (reader.wireType !== rule.wireType) {
      throw new WireFault(`has wire type ${reader.wireType} instead of ${rule.wireType}`);
    }
    target[rule.name] = rule.read(reader, target[rule.name], path);
    if (rule.oneof !== undefined) {
      target[rule.oneof] = rule.name;
      for (const rival of rule.rivals) delete target[rival];
    }
    path.pop();
  }
}

function messageRule(typeName: string): MessageRule {
  const declared = descriptors.messages.get(typeName);
  if (declared === undefined) throw new Error(`There is no message type ${typeName}.`);
  const fields = new Map<number, FieldRule>();
  const defaults: Message = {};
  for (const field of declared) {
    if (field.repeated) throw new Error(`${typeName}.${field.name} is repeated.`);
    const { wireType, empty, read } = valueRule(typeName, field);
    const { name, oneof } = field;
    const rivals = declared.filter((other) => oneof !== undefined && other.oneof === oneof);
    const names = rivals.map((other) => other.name).filter((other) => other !== name);
    fields.set(field.number, { name, wireType, read, oneof, rivals: names });
    if (oneof === undefined) defaults[name] = empty;
  }
  return { fields, defaults };
}

interface ValueRule {
  readonly wireType: number;
  /** The value of a field that is absent. */
  readonly empty: unknown;
  readonly read: FieldRule["read"];
}

/** By the numbers of google.protobuf.FieldDescriptorProto.Type. */
function valueRule(typeName: string, field: FieldDescriptor): ValueRule {
  switch (field.type) {
    case 3: // int64
      return {
        wireType: VARINT,
        empty: "0",
        read: (reader) => String(BigInt.asIntN(64, reader.varint())),
      };
    case 5: // int32
      return { wireType: VARINT, empty: 0, read: readInt32 };
    case 8: // bool
      return { wireType: VARINT, empty: false, read: (reader) => reader.varint() !== 0n };
    case 9: // string
      return { wireType: LENGTH_DELIMITED, empty: "", read: (reader) => reader.text() };
    case 11: // message
      return { wireType: LENGTH_DELIMITED, empty: null, read: messageReader(field.typeName) };
    case 12: // bytes
      return {
        wireType: LENGTH_DELIMITED,
        empty: Buffer.alloc(0),
        read: (reader) => reader.content(),
      };
    case 14: // enum
      return enumRule(field.typeName);
    default:
      throw new Error(`${typeName}.${field.name} is of a type that is not expected in requests.`);
  }
}

function readInt32(reader: WireReader): number {
  const number = BigInt.asIntN(64, reader.varint());
  if (number !== BigInt.asIntN(32, number)) throw new WireFault(`does not fit 32 bits: ${number}`);
  return Number(number);
}

/** A message that comes in several pieces is the sum of them. */
function messageReader(typeName: string): FieldRule["read"] {
  const type = messageRule(typeName);
  return (reader, before, path) => {
    const target: Message = { ...((before as Message | null | undefined) ?? type.defaults) };
    decodeInto(target, reader.content(), type, path);
    return target;
  };
}

function enumRule(typeName: string): ValueRule {
  const names = descriptors.enums.get(typeName);
  if (names === undefined) throw new Error(`There is no enum ${typeName}.`);
  return {
    wireType: VARINT,
    empty: names.get(0),
    read: (reader) => {
      const number = readInt32(reader);
      const name = names.get(number);
      if (name === undefined) {
        const known = [...names].map(([value, known]) => `${value} (${known})`).join(", ");
        throw new WireFault(`has the unknown value ${number}; there are ${known}`);
      }
      return name;
    },
  };
}
