import { LENGTH_DELIMITED, MessageCursor, VARINT } from "./message-cursor.ts";

/*
 * The numbers below are the fields of
 * https://github.com/protocolbuffers/protobuf/blob/main/src/google/protobuf/descriptor.proto
 */

export interface FieldDescriptor {
  readonly name: string;
  readonly number: number;
  /**
   * A FieldDescriptorProto.Type. A message field that its file's edition encodes with delimiters is a group, as on the
   * wire.
   */
  readonly type: number;
  readonly repeated: boolean;
  /** The full name of its message or enum; empty for other types. */
  readonly typeName: string;
  /** The oneof that it belongs to. For a proto3 `optional` field: its name after an underscore. */
  readonly oneof: string | undefined;
  /** Whether an absent field differs from one with its type's default value. */
  readonly hasPresence: boolean;
}

export interface FileDescriptor {
  readonly name: string;
  readonly imports: readonly string[];
  /** The serialized FileDescriptorProto. */
  readonly bytes: Uint8Array;
}

export interface Descriptors {
  /** By name, as imports have it. */
  readonly files: ReadonlyMap<string, FileDescriptor>;
  /** The file that declares a full name: of a message, field, enum, enum value, service or method. */
  readonly declaredIn: ReadonlyMap<string, FileDescriptor>;
  readonly messages: ReadonlyMap<string, readonly FieldDescriptor[]>;
  /** The messages that are entries of a map: field 1 is the key, 2 the value. */
  readonly mapEntries: ReadonlySet<string>;
  /** The full name of a method's input, by the method's path, such as `/pkg.Service/Method`. */
  readonly inputs: ReadonlyMap<string, string>;
  /** The full name of its output, by the same. */
  readonly outputs: ReadonlyMap<string, string>;
  readonly services: readonly string[];
  /** The names of each enum's values, by number. */
  readonly enums: ReadonlyMap<string, ReadonlyMap<number, string>>;
}

/** What files, messages and fields inherit: the part of google.protobuf.FeatureSet that is used here. */
interface Features {
  readonly implicitPresence: boolean;
  readonly delimitedMessages: boolean;
}

const GROUP = 10;
const MESSAGE = 11;

/** Reads a google.protobuf.FileDescriptorSet. Throws a WireFault for invalid bytes. */
export function readDescriptors(set: Uint8Array): Descriptors {
  const files = new Map<string, FileDescriptor>();
  const declaredIn = new Map<string, FileDescriptor>();
  const messages = new Map<string, readonly FieldDescriptor[]>();
  const mapEntries = new Set<string>();
  const inputs = new Map<string, string>();
  const outputs = new Map<string, string>();
  const services: string[] = [];
  const enums = new Map<string, ReadonlyMap<number, string>>();

  const readMessage = (
    file: FileDescriptor,
    scope: string,
    message: Fields,
    inherited: Features,
  ): void => {
    const fullName = `${scope}${message.text(1)}`;
    declaredIn.set(fullName, file);
    const options = message.first(7);
    if (options?.number(7) === 1) mapEntries.add(fullName);
    const features = overlay(inherited, options?.first(12));
    const oneofs = message.all(8).map((oneof) => oneof.text(1));
    const fields = message.all(2).map((field) => readField(field, oneofs, features));
    messages.set(fullName, fields);
    for (const field of fields) declaredIn.set(`${fullName}.${field.name}`, file);
    for (const nested of message.all(3)) readMessage(file, `${fullName}.`, nested, features);
    for (const nested of message.all(4)) readEnum(file, `${fullName}.`, nested);
  };
  const readEnum = (file: FileDescriptor, scope: string, declared: Fields): void => {
    const fullName = `${scope}${declared.text(1)}`;
    declaredIn.set(fullName, file);
    const values = declared.all(2).map((value) => [value.number(2), value.text(1)] as const);
    const names = new Map<number, string>();
    // If several names have one number, the first one is shown.
    for (const [number, name] of values) if (!names.has(number)) names.set(number, name);
    enums.set(fullName, names);
    // An enum's values are in the scope of the enum, not inside it.
    for (const [, name] of values) declaredIn.set(`${scope}${name}`, file);
  };

  for (const parsed of new Fields(set).all(1)) {
    const file = { name: parsed.text(1), imports: parsed.texts(3), bytes: parsed.bytes };
    files.set(file.name, file);
    const scope = parsed.text(2) === "" ? "" : `${parsed.text(2)}.`;
    const features = fileFeatures(parsed);
    for (const message of parsed.all(4)) readMessage(file, scope, message, features);
    for (const declared of parsed.all(5)) readEnum(file, scope, declared);
    for (const service of parsed.all(6)) {
      const fullName = `${scope}${service.text(1)}`;
      declaredIn.set(fullName, file);
      services.push(fullName);
      for (const method of service.all(2)) {
        const name = method.text(1);
        declaredIn.set(`${fullName}.${name}`, file);
        inputs.set(`/${fullName}/${name}`, typeNameOf(method.text(2)));
        outputs.set(`/${fullName}/${name}`, typeNameOf(method.text(3)));
      }
    }
  }
  return { files, declaredIn, messages, mapEntries, inputs, outputs, services, enums };
}

function readField(field: Fields, oneofs: readonly string[], inherited: Features): FieldDescriptor {
  const features = overlay(inherited, field.first(8)?.first(21));
  const type = field.number(5);
  const isMessage = type === MESSAGE || type === GROUP;
  const oneof = field.has(9) ? oneofs[field.number(9)] : undefined;
  return {
    name: field.text(1),
    number: field.number(3),
    type: type === MESSAGE && features.delimitedMessages ? GROUP : type,
    repeated: field.number(4) === 3,
    typeName: typeNameOf(field.text(6)),
    oneof,
    hasPresence: !features.implicitPresence || isMessage || oneof !== undefined,
  };
}

function fileFeatures(file: Fields): Features {
  const implicitPresence = file.text(12) === "proto3";
  return overlay({ implicitPresence, delimitedMessages: false }, file.first(8)?.first(50));
}

function overlay(inherited: Features, set: Fields | undefined): Features {
  if (set === undefined) return inherited;
  return {
    implicitPresence: set.has(1) ? set.number(1) === 2 : inherited.implicitPresence,
    delimitedMessages: set.has(5) ? set.number(5) === 2 : inherited.delimitedMessages,
  };
}

/** Descriptors begin full names with a dot. */
function typeNameOf(reference: string): string {
  return reference.replace(/^\./, "");
}

/** A message as its fields, by number. */
class Fields {
  readonly bytes: Uint8Array;
  readonly #numbers = new Map<number, number>();
  readonly #contents = new Map<number, Buffer[]>();

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
    const cursor = new MessageCursor(bytes);
    for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
      const field = tag >>> 3;
      const wireType = tag & 7;
      if (wireType === VARINT) {
        this.#numbers.set(field, Number(cursor.bigint()));
      } else if (wireType === LENGTH_DELIMITED) {
        const contents = this.#contents.get(field);
        if (contents === undefined) this.#contents.set(field, [cursor.view()]);
        else contents.push(cursor.view());
      } else {
        cursor.skip(tag);
      }
    }
  }

  has(field: number): boolean {
    return this.#numbers.has(field);
  }

  number(field: number): number {
    return this.#numbers.get(field) ?? 0;
  }

  texts(field: number): string[] {
    return (this.#contents.get(field) ?? []).map((content) => content.toString("utf8"));
  }

  text(field: number): string {
    return this.texts(field)[0] ?? "";
  }

  first(field: number): Fields | undefined {
    const content = this.#contents.get(field)?.[0];
    return content === undefined ? undefined : new Fields(content);
  }

  all(field: number): Fields[] {
    return (this.#contents.get(field) ?? []).map((content) => new Fields(content));
  }
}
