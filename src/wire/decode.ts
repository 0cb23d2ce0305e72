import { invalidRequest, type WatchFanoutError } from "../base/errors.ts";
import {
  FIXED64,
  LENGTH_DELIMITED,
  MessageCursor,
  VARINT,
  WireFault,
} from "../protobuf/message-cursor.ts";
import { descriptors, type FieldDescriptor } from "./descriptors.ts";

/** A request, or the error in its bytes. */
export type Decoded<T> =
  | { readonly request: T; readonly fault: undefined }
  | { readonly request: undefined; readonly fault: WatchFanoutError };

/**
 * Returns a deserializer for requests of a type, given by its full name. It never throws, since grpc-js turns an
 * exception into INTERNAL. For valid bytes it returns the same object as proto-loader. Invalid bytes it refuses, unlike
 * protobufjs: there, invalid UTF-8 turns into U+FFFD, so that two different keys become one; a length beyond the end is
 * reduced to what is left; and of a oneof that is set twice, the first field in the proto wins instead of the last one
 * on the wire.
 *
 * A repeated field has at most `maxElements` elements. Throws for a type with fields that no request of this service has: maps, floats,
 * other numbers of fixed size.
 */
export function strictDeserializer<T>(
  typeName: string,
  maxElements: number = defaultMaxElements,
): (bytes: Uint8Array) => Decoded<T> {
  const type = messageRule(typeName, maxElements);
  return (bytes) => {
    const path: string[] = [];
    try {
      const request: Message = { ...type.defaults };
      decodeInto(request, new MessageCursor(bytes), type, path);
      return { request: request as T, fault: undefined };
    } catch (error) {
      if (!(error instanceof WireFault)) throw error;
      const field = path.join(".");
      const where = field === "" ? "The request" : `The field ${field}`;
      const message = `${where} ${error.message}. Send a valid ${typeName}.`;
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
  /** Whether each value is an element of a list. */
  readonly isRepeated: boolean;
  readonly maxElements: number;
  readonly read: (cursor: MessageCursor, before: unknown, path: string[]) => unknown;
  readonly oneof: string | undefined;
  /** The other fields of its oneof. */
  readonly rivals: readonly string[];
}

function decodeInto(
  target: Message,
  cursor: MessageCursor,
  type: MessageRule,
  path: string[],
): void {
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    const rule = type.fields.get(tag >>> 3);
    if (rule === undefined) {
      cursor.skip(tag);
      continue;
    }
    path.push(rule.name);
    const wireType = tag & 7;
    if (rule.isRepeated) {
      target[rule.name] = addElements(target[rule.name] as Elements, cursor, rule, wireType, path);
      path.pop();
      continue;
    }
    if (wireType !== rule.wireType) {
      throw new WireFault(`has wire type ${wireType} instead of ${rule.wireType}`);
    }
    target[rule.name] = rule.read(cursor, target[rule.name], path);
    if (rule.oneof !== undefined) {
      target[rule.oneof] = rule.name;
      for (const rival of rule.rivals) delete target[rival];
    }
    path.pop();
  }
}

type Elements = unknown[];

const defaultMaxElements = 1_024;
/** The elements of all fields that are absent. */
const noElements: Elements = [];

/**
 * Adds the elements of this field: one, or numbers that are packed. Returns the list, which is the one before unless that
 * is shared: a field that occurs a million times would take seconds if each occurrence copied it.
 */
function addElements(
  before: Elements,
  cursor: MessageCursor,
  rule: FieldRule,
  wireType: number,
  path: string[],
): Elements {
  const elements = before === noElements ? [] : before;
  const isPacked = wireType === LENGTH_DELIMITED && rule.wireType !== LENGTH_DELIMITED;
  if (!isPacked && wireType !== rule.wireType) {
    throw new WireFault(`has wire type ${wireType} instead of ${rule.wireType}`);
  }
  const outer = isPacked ? cursor.enter() : undefined;
  do {
    if (isPacked && !cursor.hasMore) break;
    if (elements.length === rule.maxElements) {
      throw new WireFault(`has more than ${rule.maxElements} elements`);
    }
    elements.push(rule.read(cursor, undefined, path));
  } while (isPacked);
  if (outer !== undefined) cursor.leave(outer);
  return elements;
}

function messageRule(typeName: string, maxElements: number = defaultMaxElements): MessageRule {
  const declared = descriptors.messages.get(typeName);
  if (declared === undefined) throw new Error(`There is no message type ${typeName}.`);
  const fields = new Map<number, FieldRule>();
  const defaults: Message = {};
  for (const field of declared) {
    const isRepeated = field.repeated;
    const { wireType, empty, read } = valueRule(typeName, field);
    const { name, oneof } = field;
    const rivals = declared.filter((other) => oneof !== undefined && other.oneof === oneof);
    const names = rivals.map((other) => other.name).filter((other) => other !== name);
    const rule = { name, wireType, isRepeated, maxElements, read, oneof, rivals: names };
    fields.set(field.number, rule);
    if (oneof === undefined) defaults[name] = isRepeated ? noElements : empty;
  }
  return { fields, defaults };
}

interface ValueRule {
  readonly wireType: number;
  /** The value of an absent field. */
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
        read: (cursor) => String(BigInt.asIntN(64, cursor.bigint())),
      };
    case 5: // int32
      return { wireType: VARINT, empty: 0, read: readInt32 };
    case 6: // fixed64
      return {
        wireType: FIXED64,
        empty: "0",
        read: (cursor) => String(cursor.fixed(8).readBigUInt64LE()),
      };
    case 8: // bool
      return { wireType: VARINT, empty: false, read: (cursor) => cursor.bigint() !== 0n };
    case 9: // string
      return { wireType: LENGTH_DELIMITED, empty: "", read: (cursor) => cursor.text() };
    case 11: // message
      return { wireType: LENGTH_DELIMITED, empty: null, read: messageReader(field.typeName) };
    case 12: // bytes
      return {
        wireType: LENGTH_DELIMITED,
        empty: Buffer.alloc(0),
        read: (cursor) => cursor.view(),
      };
    case 14: // enum
      return enumRule(field.typeName);
    default:
      throw new Error(`${typeName}.${field.name} has a type that requests do not support.`);
  }
}

function readInt32(cursor: MessageCursor): number {
  const number = BigInt.asIntN(64, cursor.bigint());
  if (number !== BigInt.asIntN(32, number)) throw new WireFault(`does not fit 32 bits: ${number}`);
  return Number(number);
}

/** A message field that occurs several times is merged. */
function messageReader(typeName: string): FieldRule["read"] {
  const type = messageRule(typeName);
  return (cursor, before, path) => {
    const target: Message = { ...((before as Message | null | undefined) ?? type.defaults) };
    const outer = cursor.enter();
    decodeInto(target, cursor, type, path);
    cursor.leave(outer);
    return target;
  };
}

function enumRule(typeName: string): ValueRule {
  const names = descriptors.enums.get(typeName);
  if (names === undefined) throw new Error(`There is no enum ${typeName}.`);
  return {
    wireType: VARINT,
    empty: names.get(0),
    read: (cursor) => {
      const number = readInt32(cursor);
      const name = names.get(number);
      if (name === undefined) {
        const known = [...names].map(([value, known]) => `${value} (${known})`).join(", ");
        throw new WireFault(`has the unknown value ${number}; known values are ${known}`);
      }
      return name;
    },
  };
}
