import { FIXED64, LENGTH_DELIMITED, MessageCursor, VARINT } from "./message-cursor.ts";
import { ReverseWriter } from "./reverse-writer.ts";
import { newBytes, textBytes } from "./text.ts";

/** A definition as protobufjs writes it in JSON: of a package, a message, an enum or a service. */
interface Definition {
  readonly nested?: Readonly<Record<string, Definition>>;
  readonly fields?: Readonly<Record<string, FieldDefinition>>;
  readonly oneofs?: Readonly<Record<string, { readonly oneof: readonly string[] }>>;
  readonly values?: Readonly<Record<string, number>>;
  readonly methods?: Readonly<
    Record<string, { readonly requestType: string; readonly responseType: string }>
  >;
}

interface FieldDefinition {
  readonly type: string;
  readonly id: number;
  readonly rule?: string;
  /** Of a map. */
  readonly keyType?: string;
}

/** A message as a plain object: its fields by their names in the proto. */
type Fields = Record<string, unknown>;

/** How values of one type are read and written. */
interface ValueType {
  readonly wireType: number;
  /** Of a field that is not in the message. */
  readonly absent: unknown;
  read(cursor: MessageCursor): unknown;
  /** Writes a value without its tag. `value` is what the caller of the library has passed. */
  write(writer: ReverseWriter, value: unknown): void;
  /** Whether a field without presence is left out. */
  isDefault(value: unknown): boolean;
}

/** A message type: encodes and decodes its messages. */
export interface MessageType<Input, Output> {
  encode(message: Input): Uint8Array;
  /** Throws a WireFault for what is no such message. Bytes in the result are views. */
  decode(bytes: Uint8Array): Output;
}

/**
 * The message types of protos, by their definitions in JSON. Unlike protobufjs it generates no code at run time, which the
 * Content-Security-Policy of a page forbids, and it reads a message in one pass.
 *
 * Messages are as proto-loader has them with `longs` and `enums` as strings, `defaults` and `oneofs`: integers of 64 bits are
 * decimal strings, enums are names (an unknown one is a number), an absent message is null, and for each oneof that is set its
 * name has that of its field.
 */
export class MessageTypes {
  readonly #root: Definition;
  readonly #types = new Map<string, ValueType>();

  constructor(json: object) {
    this.#root = json as Definition;
  }

  /** The message type with this full name. Throws an Error if it does not exist. */
  message<Input, Output>(name: string): MessageType<Input, Output> {
    const type = this.#type(name, "");
    if (!(type instanceof Message)) throw new Error(`${name} is not a message.`);
    return {
      encode: (message) => {
        const writer = new ReverseWriter();
        type.writeFields(writer, message as Fields);
        return writer.finish();
      },
      decode: (bytes) => type.readFields(new MessageCursor(bytes)) as Output,
    };
  }

  /** The methods of a service, with the full names of its types. Throws an Error if there is no such service. */
  methods(service: string) {
    const { methods } = this.#definition(service) ?? {};
    if (methods === undefined) throw new Error(`There is no service ${service}.`);
    const scope = service.slice(0, service.lastIndexOf("."));
    return Object.entries(methods).map(([name, { requestType, responseType }]) => ({
      name,
      requestType: `${scope}.${requestType}`,
      responseType: `${scope}.${responseType}`,
    }));
  }

  #definition(full: string): Definition | undefined {
    let definition: Definition | undefined = this.#root;
    for (const part of full.split(".")) definition = definition?.nested?.[part];
    return definition;
  }

  /** The type that `name` means in the package or message `scope`. */
  #type(name: string, scope: string): ValueType {
    const scalar = scalars[name];
    if (scalar !== undefined) return scalar;
    for (let within = scope; ; within = within.slice(0, Math.max(0, within.lastIndexOf(".")))) {
      const full = within === "" ? name : `${within}.${name}`;
      const known = this.#types.get(full) ?? this.#define(full);
      if (known !== undefined) return known;
      if (within === "") throw new Error(`There is no type ${name} in ${scope}.`);
    }
  }

  #define(full: string): ValueType | undefined {
    const definition = this.#definition(full);
    if (definition?.values !== undefined) {
      const type = enumType(definition.values);
      this.#types.set(full, type);
      return type;
    }
    if (definition?.fields === undefined) return undefined;
    const message = new Message();
    // Before its fields, whose types may be itself.
    this.#types.set(full, message);
    const oneofs = new Map<string, string>();
    for (const [oneof, { oneof: names }] of Object.entries(definition.oneofs ?? {})) {
      for (const name of names) oneofs.set(name, oneof);
    }
    for (const [name, field] of Object.entries(definition.fields)) {
      const type = this.#type(field.type, full);
      const shape = shapeOf(field);
      message.add({ name, id: field.id, type, shape, oneof: oneofs.get(name) });
    }
    return message;
  }
}

type Shape = "single" | "list" | "map";

function shapeOf({ rule, keyType }: FieldDefinition): Shape {
  if (keyType !== undefined && keyType !== "string") throw new Error(`A map of ${keyType}.`);
  return keyType !== undefined ? "map" : rule === "repeated" ? "list" : "single";
}

interface Field {
  readonly name: string;
  readonly id: number;
  readonly type: ValueType;
  readonly shape: Shape;
  /** The oneof that it is in, such as that of an optional field. */
  readonly oneof: string | undefined;
}

class Message implements ValueType {
  readonly wireType = LENGTH_DELIMITED;
  readonly absent = null;
  readonly #byId: (Field | undefined)[] = [];
  /** In the order in which they are written: the last one first. */
  readonly #fields: Field[] = [];
  readonly #defaults: Fields = {};
  readonly #containers: Field[] = [];

  add(field: Field): void {
    this.#byId[field.id] = field;
    this.#fields.unshift(field);
    if (field.shape !== "single") this.#containers.push(field);
    if (field.oneof === undefined) this.#defaults[field.name] = field.type.absent;
  }

  isDefault(value: unknown): boolean {
    return value === null || value === undefined;
  }

  read(cursor: MessageCursor): Fields {
    const outer = cursor.enter();
    const fields = this.readFields(cursor);
    cursor.leave(outer);
    return fields;
  }

  readFields(cursor: MessageCursor): Fields {
    const message = { ...this.#defaults };
    for (const { name, shape } of this.#containers) message[name] = shape === "list" ? [] : {};
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      const field = this.#byId[tag >>> 3];
      if (field === undefined) cursor.skip(tag);
      else readField(message, field, cursor, tag);
    }
    return message;
  }

  write(writer: ReverseWriter, value: unknown): void {
    const end = writer.size;
    this.writeFields(writer, value as Fields);
    writer.varint(writer.size - end);
  }

  writeFields(writer: ReverseWriter, message: Fields): void {
    for (const field of this.#fields) {
      const value = message[field.name];
      if (value === undefined || value === null) continue;
      if (field.shape === "list") {
        const values = value as readonly unknown[];
        for (let i = values.length - 1; i >= 0; i--) writeField(writer, field, values[i]);
      } else if (field.shape === "map") {
        for (const entry of Object.entries(value).reverse()) writeEntry(writer, field, entry);
      } else if (field.oneof !== undefined || !field.type.isDefault(value)) {
        writeField(writer, field, value);
      }
    }
  }
}

function writeField(writer: ReverseWriter, { id, type }: Field, value: unknown): void {
  type.write(writer, value);
  writer.varint(id * 8 + type.wireType);
}

function writeEntry(writer: ReverseWriter, { id, type }: Field, entry: [string, unknown]): void {
  const end = writer.size;
  type.write(writer, entry[1]);
  writer.varint(2 * 8 + type.wireType);
  stringType.write(writer, entry[0]);
  writer.varint(8 + LENGTH_DELIMITED);
  writer.varint(writer.size - end);
  writer.varint(id * 8 + LENGTH_DELIMITED);
}

function readField(message: Fields, field: Field, cursor: MessageCursor, tag: number): void {
  const { name, type, shape, oneof } = field;
  const wireType = tag & 7;
  if (shape === "map" && wireType === LENGTH_DELIMITED) {
    readEntry(message[name] as Fields, type, cursor);
  } else if (wireType === type.wireType) {
    if (shape === "list") (message[name] as unknown[]).push(type.read(cursor));
    else {
      if (oneof !== undefined) {
        const other = message[oneof] as string | undefined;
        if (other !== undefined && other !== name) delete message[other];
        message[oneof] = name;
      }
      message[name] = type.read(cursor);
    }
  } else if (shape === "list" && wireType === LENGTH_DELIMITED) {
    // Packed numbers.
    const outer = cursor.enter();
    while (cursor.hasMore) (message[name] as unknown[]).push(type.read(cursor));
    cursor.leave(outer);
  } else {
    cursor.skip(tag);
  }
}

function readEntry(map: Fields, type: ValueType, cursor: MessageCursor): void {
  const outer = cursor.enter();
  let key = "";
  let value: unknown = type.absent;
  for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
    if (tag === 8 + LENGTH_DELIMITED) key = cursor.text();
    else if (tag === 2 * 8 + type.wireType) value = type.read(cursor);
    else cursor.skip(tag);
  }
  cursor.leave(outer);
  // An assignment to "__proto__" would not be one.
  Object.defineProperty(map, key, {
    ...{ value, enumerable: true, configurable: true, writable: true },
  });
}

const noBytes = newBytes(0);

const stringType: ValueType = {
  wireType: LENGTH_DELIMITED,
  absent: "",
  read: (cursor) => cursor.text(),
  write: (writer, value) => {
    const bytes = textBytes(String(value));
    writer.raw(bytes);
    writer.varint(bytes.byteLength);
  },
  isDefault: (value) => value === "",
};

const bytesType: ValueType = {
  wireType: LENGTH_DELIMITED,
  absent: noBytes,
  read: (cursor) => cursor.view(),
  write: (writer, value) => {
    if (!(value instanceof Uint8Array)) throw new TypeError("Bytes have to be a Uint8Array.");
    writer.raw(value);
    writer.varint(value.byteLength);
  },
  isDefault: (value) => (value as Uint8Array).byteLength === 0,
};

const boolType: ValueType = {
  wireType: VARINT,
  absent: false,
  read: (cursor) => cursor.bigint() !== 0n,
  write: (writer, value) => writer.varint(value === true ? 1 : 0),
  isDefault: (value) => value !== true,
};

const int32Type: ValueType = {
  wireType: VARINT,
  absent: 0,
  read: (cursor) => Number(BigInt.asIntN(32, BigInt(cursor.integer()))),
  write: writeInteger,
  isDefault: isZero,
};

const int64Type: ValueType = {
  wireType: VARINT,
  absent: "0",
  read: (cursor) => String(cursor.integer()),
  write: writeInteger,
  isDefault: isZero,
};

const fixed64Type: ValueType = {
  wireType: FIXED64,
  absent: "0",
  read: (cursor) => {
    const bytes = cursor.fixed(8);
    return String(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true));
  },
  write: (writer, value) => writer.fixed64(BigInt(String(value))),
  isDefault: isZero,
};

const scalars: Readonly<Record<string, ValueType | undefined>> = {
  string: stringType,
  bytes: bytesType,
  bool: boolType,
  int32: int32Type,
  int64: int64Type,
  fixed64: fixed64Type,
};

function enumType(values: Readonly<Record<string, number>>): ValueType {
  const names: (string | undefined)[] = [];
  // The first one of several with the same number.
  for (const [name, number] of Object.entries(values)) names[number] ??= name;
  const numberOf = (value: unknown): number => {
    const number = typeof value === "number" ? value : values[String(value)];
    if (number === undefined) throw new TypeError(`There is no enum value ${String(value)}.`);
    return number;
  };
  return {
    wireType: VARINT,
    absent: names[0],
    read: (cursor) => {
      const number = int32Type.read(cursor) as number;
      return names[number] ?? number;
    },
    write: (writer, value) => writeInteger(writer, numberOf(value)),
    isDefault: (value) => numberOf(value) === 0,
  };
}

/** `value`: a number, a bigint, a decimal string, or what has one as its text. */
function writeInteger(writer: ReverseWriter, value: unknown): void {
  if (typeof value === "number" && value >= 0 && Number.isSafeInteger(value)) writer.varint(value);
  else writer.bigVarint(BigInt(String(value)));
}

function isZero(value: unknown): boolean {
  return value === 0 || String(value) === "0";
}
