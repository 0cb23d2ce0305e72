import { messageOf } from "../../base/errors.ts";
import { varintSize, WireWriter } from "../../protobuf/wire-writer.ts";
import { InvalidJson } from "./invalid-json.ts";
import { camelCase, type Field, type FieldType, type Message } from "./message-type.ts";
import { wellKnownValue } from "./well-known.ts";

/** Maximum depth of messages: transactions within transactions. */
const maxDepth = 100;

const VARINT = 0;
const FIXED64 = 1;
const LENGTH_DELIMITED = 2;

/** The most bytes of a varint. */
const maxVarint = 10;

/** The bounds of the integer types. */
const bounds = {
  fixed64: [0n, 2n ** 64n - 1n],
  int32: [-(2n ** 31n), 2n ** 31n - 1n],
  int64: [-(2n ** 63n), 2n ** 63n - 1n],
  uint64: [0n, 2n ** 64n - 1n],
  uint32: [0n, 2n ** 32n - 1n],
} as const;

/** A number of the JSON that JavaScript does not hold exactly, as it was written. */
class NumberText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }

  toJSON(): unknown {
    return Number(this.text);
  }
}

/** There is such a number, and it was not kept as it was written. */
class InexactNumber extends Error {}

/**
 * Encodes the message that a JSON object is, as protobuf's JSON mapping has it. Unknown fields, and unknown names of an enum,
 * are ignored unless the message is strict. Throws InvalidJson.
 */
export function messageFromJson(type: Message, text: string): Buffer {
  try {
    return encoded(type, parse(text));
  } catch (error) {
    if (!(error instanceof InexactNumber)) throw error;
    return encoded(type, parse(text, keepText as (key: string, value: unknown) => unknown));
  }
}

function encoded(type: Message, value: unknown): Buffer {
  const writer = new GrowingWriter();
  encode(writer, type, value, 0);
  return writer.written;
}

/** Writes a message whose size is not known before. */
class GrowingWriter extends WireWriter {
  constructor() {
    super(Buffer.allocUnsafe(256));
  }

  get written(): Buffer {
    return this.bytes.subarray(0, this.position);
  }

  /** Makes room for this many bytes. */
  reserve(size: number): void {
    const { bytes, position } = this;
    if (position + size <= bytes.length) return;
    const room = Buffer.allocUnsafe(Math.max(position + size, 2 * bytes.length));
    bytes.copy(room, 0, 0, position);
    this.moveTo(room, position);
  }

  tag(number: number, wireType: number): void {
    this.reserve(maxVarint);
    this.varint((number << 3) | wireType);
  }

  number(value: bigint): void {
    this.reserve(maxVarint);
    this.bigVarint(BigInt.asUintN(64, value));
  }

  fixed64(value: bigint): void {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeBigUInt64LE(value);
    this.reserve(bytes.length);
    this.raw(bytes);
  }

  content(bytes: Uint8Array): void {
    this.reserve(maxVarint + bytes.length);
    this.varint(bytes.length);
    this.raw(bytes);
  }

  /** Puts the size of what was written since `start` before it. */
  putSizeBefore(start: number): void {
    const end = this.position;
    const space = varintSize(end - start);
    this.reserve(space);
    this.bytes.copyWithin(start + space, start, end);
    this.moveTo(this.bytes, start);
    this.varint(end - start);
    this.moveTo(this.bytes, end + space);
  }
}

/** Node.js' parser passes the source of a value as well. */
function keepText(_key: string, value: unknown, context: { readonly source?: string }): unknown {
  return typeof value === "number" && !Number.isSafeInteger(value)
    ? new NumberText(context.source ?? String(value))
    : value;
}

function parse(text: string, reviver?: (key: string, value: unknown) => unknown): unknown {
  try {
    return JSON.parse(text, reviver);
  } catch (error) {
    // A RangeError: it is nested too deeply for the reviver.
    throw new InvalidJson(`proto: syntax error: ${messageOf(error)}`);
  }
}

function encode(writer: GrowingWriter, type: Message, given: unknown, depth: number): void {
  const value = wellKnownValue(type, given);
  if (!isObject(value))
    throw new InvalidJson(`proto: syntax error: unexpected token ${tokenOf(value)}`);
  if (depth === maxDepth) throw new InvalidJson("proto: exceeded maximum recursion depth");
  const seen = new Set<Field | string>();
  for (const [name, given] of Object.entries(value)) {
    const field = type.byName.get(name);
    if (field === undefined && type.isStrict) throw unknownField(type, name);
    if (field === undefined || given === null) continue;
    if (seen.has(field)) throw new InvalidJson(`proto: duplicate field ${JSON.stringify(name)}`);
    seen.add(field);
    if (field.oneof !== undefined) {
      if (seen.has(field.oneof))
        throw new InvalidJson(
          `proto: error parsing ${JSON.stringify(name)}, oneof ${type.package}.${type.name}.${field.oneof} is already set`,
        );
      seen.add(field.oneof);
    }
    addField(writer, field, given, depth, type.isStrict);
  }
}

function unknownField(type: Message, name: string): InvalidJson {
  const known = [...type.byNumber.values()].map((field) => field.name).join(", ");
  return new InvalidJson(
    `unknown field ${tokenOf(name)} of ${type.package}.${type.name}; it has ${known === "" ? "no fields" : known}`,
  );
}

function addField(
  writer: GrowingWriter,
  field: Field,
  given: unknown,
  depth: number,
  isStrict: boolean,
): void {
  const { number, type, isRepeated } = field;
  if (!isRepeated) {
    addValue(writer, field, given, depth, isStrict);
    return;
  }
  if (!Array.isArray(given))
    throw new InvalidJson(`proto: syntax error: unexpected token ${tokenOf(given)}`);
  if (!isEnum(type)) {
    for (const each of given) addValue(writer, field, each, depth, isStrict);
    return;
  }
  const numbers = given
    .map((each) => numberOf(field, each, isStrict))
    .filter((each) => each !== undefined);
  if (numbers.length === 0) return;
  writer.tag(number, LENGTH_DELIMITED);
  const start = writer.position;
  for (const each of numbers) writer.number(each);
  writer.putSizeBefore(start);
}

function addValue(
  writer: GrowingWriter,
  field: Field,
  given: unknown,
  depth: number,
  isStrict: boolean,
): void {
  const { number, type, oneof, isRepeated } = field;
  // A default is left out, but not where its presence says something.
  const isKept = isRepeated || oneof !== undefined;
  if (type === "bytes" || type === "string") {
    const bytes = type === "bytes" ? bytesOf(field, given) : textOf(field, given);
    if (bytes.length === 0 && !isKept) return;
    writer.tag(number, LENGTH_DELIMITED);
    writer.content(bytes);
  } else if (typeof type === "object" && !isEnum(type)) {
    writer.tag(number, LENGTH_DELIMITED);
    const start = writer.position;
    encode(writer, type, given, depth + 1);
    writer.putSizeBefore(start);
  } else {
    const value = numberOf(field, given, isStrict);
    if (value === undefined || (value === 0n && !isKept)) return;
    writer.tag(number, type === "fixed64" ? FIXED64 : VARINT);
    if (type === "fixed64") writer.fixed64(value);
    else writer.number(value);
  }
}

function isObject(value: unknown): value is object {
  return (
    typeof value === "object" &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof NumberText)
  );
}

function isEnum(type: FieldType): type is readonly string[] {
  return Array.isArray(type);
}

/** The value of a bool, an enum or an integer; undefined: an unknown name of an enum, which is ignored as an unknown field is. */
function numberOf(field: Field, given: unknown, isStrict: boolean): bigint | undefined {
  const { type } = field;
  if (type === "bool") {
    if (typeof given !== "boolean") throw invalid(field, given);
    return given ? 1n : 0n;
  }
  if (isEnum(type)) {
    if (typeof given === "string") {
      const index = type.indexOf(given);
      if (index < 0 && isStrict) throw unknownName(field, type, given);
      return index < 0 ? undefined : BigInt(index);
    }
    return integerOf(field, given, -(2n ** 31n), 2n ** 31n - 1n);
  }
  const [least, greatest] = bounds[type as keyof typeof bounds];
  return integerOf(field, given, least, greatest);
}

function unknownName({ name }: Field, names: readonly string[], given: string): InvalidJson {
  const known = names.filter((each) => each !== undefined).join(", ");
  return new InvalidJson(`unknown value ${tokenOf(given)} of the field ${name}; it has ${known}`);
}

function integerOf(field: Field, given: unknown, least: bigint, greatest: bigint): bigint {
  if (typeof given === "number" && !Number.isSafeInteger(given)) throw new InexactNumber();
  const text = given instanceof NumberText ? given.text : given;
  if (typeof text !== "string" && typeof text !== "number") throw invalid(field, given);
  const value = exactInteger(String(text));
  if (value === undefined || value < least || value > greatest) throw invalid(field, given);
  return value;
}

/** Maximum length of an integer, in characters: that of 64 bits has 20, or more with a fraction of zeros. */
const maxIntegerLength = 256;

/** An integer that may be written with a fraction of zeros or an exponent; undefined: it is not one. */
function exactInteger(text: string): bigint | undefined {
  if (text.length > maxIntegerLength) return undefined;
  if (/^-?(?:0|[1-9]\d{0,20})$/.test(text)) return BigInt(text);
  if (!/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text)) return undefined;
  const number = Number(text);
  return Number.isSafeInteger(number) ? BigInt(number) : undefined;
}

function textOf(field: Field, given: unknown): Buffer {
  // A lone surrogate has no UTF-8: different keys would become the same one.
  if (typeof given !== "string" || !given.isWellFormed()) throw invalid(field, given);
  return Buffer.from(given, "utf8");
}

/** Base64 with either alphabet. Padding may be left out, line breaks are ignored. */
function bytesOf(field: Field, given: unknown): Buffer {
  if (typeof given !== "string") throw invalid(field, given);
  const text = /[\r\n]/.test(given) ? given.replace(/[\r\n]/g, "") : given;
  const pattern = /[-_]/.test(text) ? /^[\w-]*={0,2}$/ : /^[A-Za-z\d+/]*={0,2}$/;
  const isPadded = text.endsWith("=");
  const isWhole = isPadded ? text.length % 4 === 0 : text.length % 4 !== 1;
  if (!pattern.test(text) || !isWhole) throw invalid(field, given);
  return Buffer.from(text, "base64");
}

function invalid({ name, type }: Field, given: unknown): InvalidJson {
  const kind = isEnum(type) ? "enum" : String(type);
  return new InvalidJson(
    `proto: invalid value for ${kind} field ${camelCase(name)}: ${tokenOf(given)}`,
  );
}

/** The token that a value begins with, cut: it is in an error text. */
function tokenOf(value: unknown): string {
  if (value instanceof NumberText) return value.text.slice(0, maxToken);
  if (Array.isArray(value)) return "[";
  if (isObject(value)) return "{";
  return JSON.stringify(typeof value === "string" ? value.slice(0, maxToken) : value).slice(
    0,
    maxToken,
  );
}

const maxToken = 256;
