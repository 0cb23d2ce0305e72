import { GrowingBuffer } from "../../base/growing-buffer.ts";
import {
  FIXED64,
  LENGTH_DELIMITED,
  MessageCursor,
  VARINT,
  WireFault,
} from "../../protobuf/message-cursor.ts";
import { descriptors } from "../descriptors.ts";
import { prefixSize } from "../encode.ts";
import type { Field, Message } from "./message-type.ts";
import { servedType } from "./served-types.ts";
import { wellKnownJson } from "./well-known.ts";

/** Returns the JSON of a message. Throws a WireFault if it is invalid. */
export function jsonOf(type: Message, bytes: Buffer): string {
  return objectOf(type, new MessageCursor(bytes));
}

/** As protobuf's JSON mapping has it. Fields with a default are left out. */
function objectOf(type: Message, cursor: MessageCursor): string {
  if (type.name === "Any" && type.package === "google.protobuf") return anyOf(cursor);
  const wellKnown = wellKnownJson(type, cursor);
  if (wellKnown !== undefined) return wellKnown;
  const values = new Map<Field, string>();
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    const field = fieldAt(type, cursor, tag);
    if (field === undefined) continue;
    const value = valueIn(field, cursor);
    const before = field.isRepeated ? values.get(field) : undefined;
    // Of a field that is there twice, the last one counts: a relayed watch has etcd's id, and behind it the client's.
    if (value === undefined) values.delete(field);
    else values.set(field, before === undefined ? value : `${before},${value}`);
  }
  let text = "";
  for (const field of values.size === 0 ? [] : type.byNumber.values()) {
    const value = values.get(field);
    if (value === undefined) continue;
    const [open, close] = bracketsOf(field);
    text += `${text === "" ? "" : ","}"${field.name}":${open}${value}${close}`;
  }
  return `{${text}}`;
}

/** The JSON of a message with its type. One of an unknown type has its bytes. */
function anyOf(cursor: MessageCursor): string {
  let url = "";
  let bytes: Buffer = Buffer.alloc(0);
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 0x0a) url = cursor.text();
    else if (tag === 0x12) bytes = cursor.view();
    else cursor.skip(tag);
  }
  const fullName = url.slice(url.lastIndexOf("/") + 1);
  const fields = descriptors.messages.has(fullName)
    ? jsonOf(servedType(fullName), bytes)
    : `{"value":"${bytes.toString("base64")}"}`;
  return `{"@type":${JSON.stringify(url)}${fields === "{}" ? "" : ","}${fields.slice(1)}`;
}

/** What is around the values of a field. */
function bracketsOf({ isRepeated, isMap }: Field): readonly [string, string] {
  if (isMap === true) return ["{", "}"];
  return isRepeated ? ["[", "]"] : ["", ""];
}

/** The field whose tag was read. Undefined: it is not known, and skipped. */
function fieldAt(type: Message, cursor: MessageCursor, tag: number): Field | undefined {
  const field = type.byNumber.get(tag >>> 3);
  if (field !== undefined && (tag & 7) === wireTypeOf(field)) return field;
  cursor.skip(tag);
  return undefined;
}

function wireTypeOf({ type }: Field): number {
  if (type === "fixed64") return FIXED64;
  const isNumber = type === "bool" || Array.isArray(type) || /int/.test(String(type));
  return isNumber ? VARINT : LENGTH_DELIMITED;
}

/** The JSON of a field's value; undefined: it is the default, and left out. */
function valueIn(field: Field, cursor: MessageCursor): string | undefined {
  const { type, isRepeated, oneof } = field;
  const isKept = isRepeated || oneof !== undefined;
  if (type === "bytes") {
    cursor.content();
    const { bytes, start, end } = cursor;
    return start === end && !isKept ? undefined : `"${bytes.toString("base64", start, end)}"`;
  }
  if (type === "string") {
    const text = cursor.text();
    return text === "" && !isKept ? undefined : JSON.stringify(text);
  }
  if (typeof type === "object" && "byNumber" in type) {
    const outer = cursor.enter();
    const text = field.isMap === true ? entryOf(type, cursor) : objectOf(type, cursor);
    cursor.leave(outer);
    return text;
  }
  const value = type === "fixed64" ? cursor.fixed(8).readBigUInt64LE() : cursor.bigint();
  if (value === 0n && !isKept) return undefined;
  if (type === "bool") return String(value !== 0n);
  if (type === "uint32") return String(BigInt.asUintN(32, value));
  if (type === "uint64" || type === "fixed64") return `"${value}"`;
  if (type === "int64") return `"${BigInt.asIntN(64, value)}"`;
  const number = BigInt.asIntN(32, value);
  if (type === "int32") return String(number);
  return type[Number(number)] === undefined ? String(number) : `"${type[Number(number)]}"`;
}

/** The JSON of an entry of a map whose keys are strings, without braces. */
function entryOf(type: Message, cursor: MessageCursor): string {
  let key = '""';
  let value: string | undefined;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    const field = fieldAt(type, cursor, tag);
    if (field === undefined) continue;
    const text = valueIn({ ...field, isRepeated: true }, cursor);
    if (field.number === 1) key = text ?? key;
    else value = text;
  }
  return `${key}:${value ?? (type.byNumber.get(2)?.type === "string" ? '""' : "{}")}`;
}

/**
 * Turns a message with gRPC's framing into JSON while it arrives: each field of it as soon as it is whole. So of a large response
 * one object is held, not all. Each field must be in one place, as etcd and this service encode responses.
 */
export class JsonStream {
  readonly #type: Message;
  readonly #bytes = new GrowingBuffer();
  #hasPrefix = false;
  /** What comes before the next field. */
  #separator = "{";
  /** The repeated field whose array is open; undefined: none is. */
  #open: Field | undefined;
  readonly #seen = new Set<Field>();

  constructor(type: Message) {
    this.#type = type;
  }

  /** Size of what is held until its field is whole, in bytes. */
  get heldBytes(): number {
    return this.#bytes.length;
  }

  /** Returns the JSON of what is whole by now. Throws a WireFault for an invalid message. */
  add(chunk: Buffer): string {
    const bytes = this.#bytes;
    bytes.append(chunk, Infinity);
    if (!this.#hasPrefix) {
      if (bytes.length < prefixSize) return "";
      bytes.drop(prefixSize);
      this.#hasPrefix = true;
    }
    let text = "";
    for (let size = fieldSize(bytes.bytes); size > 0; size = fieldSize(bytes.bytes)) {
      text += this.#field(new MessageCursor(bytes.bytes.subarray(0, size)));
      bytes.drop(size);
    }
    return text;
  }

  /** Returns the end of the JSON. */
  end(): string {
    if (this.#bytes.length > 0) throw new WireFault("is truncated");
    return `${this.#close()}${this.#separator === "{" ? "{" : ""}}`;
  }

  #field(cursor: MessageCursor): string {
    const field = fieldAt(this.#type, cursor, cursor.next());
    const value = field && valueIn(field, cursor);
    if (field === undefined || value === undefined) return "";
    if (field === this.#open) return `,${value}`;
    if (this.#seen.has(field)) throw new WireFault(`has the field ${field.name} in two places`);
    this.#seen.add(field);
    const before = this.#close() + this.#separator;
    this.#separator = ",";
    this.#open = field.isRepeated ? field : undefined;
    return `${before}"${field.name}":${bracketsOf(field)[0]}${value}`;
  }

  #close(): string {
    return this.#open === undefined ? "" : bracketsOf(this.#open)[1];
  }
}

/** The size of the field that the bytes begin with, with its tag; 0: it is not whole. */
function fieldSize(bytes: Buffer): number {
  const tagEnd = varintEnd(bytes, 0);
  if (tagEnd === 0) return 0;
  const isBytes = ((bytes[0] as number) & 7) === LENGTH_DELIMITED;
  const end = varintEnd(bytes, tagEnd);
  if (end === 0 || !isBytes) return end;
  const length = new MessageCursor(bytes.subarray(tagEnd, end)).natural();
  return end + length > bytes.length ? 0 : end + length;
}

/** Where the number ends that begins at `from`; 0: it is not whole. */
function varintEnd(bytes: Buffer, from: number): number {
  for (let at = from; at < bytes.length; at++) if ((bytes[at] as number) < 0x80) return at + 1;
  return 0;
}
