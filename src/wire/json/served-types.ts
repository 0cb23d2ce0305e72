import { descriptors, type FieldDescriptor } from "../descriptors.ts";
import {
  camelCase,
  type Field,
  type FieldType,
  type Message,
  type Scalar,
} from "./message-type.ts";

/** By the numbers of google.protobuf.FieldDescriptorProto.Type. */
const scalarTypes: Readonly<Record<number, Scalar>> = {
  3: "int64",
  4: "uint64",
  5: "int32",
  6: "fixed64",
  8: "bool",
  9: "string",
  12: "bytes",
  13: "uint32",
};

const ENUM = 14;

const typesByName = new Map<string, Message>();

/** The type of a message that this service serves, by its full name. Throws an Error for any other name. */
export function servedType(fullName: string): Message {
  const found = typesByName.get(fullName);
  if (found !== undefined) return found;
  const declared = descriptors.messages.get(fullName);
  if (declared === undefined) throw new Error(`There is no message type ${fullName}.`);
  const byNumber = new Map<number, Field>();
  const byName = new Map<string, Field>();
  const dot = fullName.lastIndexOf(".");
  const type: Message = {
    ...{ package: fullName.slice(0, dot), name: fullName.slice(dot + 1) },
    ...{ byNumber, byName, isStrict: true },
  };
  // Before its fields, since a message may contain itself.
  typesByName.set(fullName, type);
  for (const descriptor of declared) {
    const field = fieldOf(descriptor);
    byNumber.set(field.number, field);
    byName.set(descriptor.name, field);
    byName.set(field.name, field);
  }
  return type;
}

function fieldOf(descriptor: FieldDescriptor): Field {
  const { name, number, repeated: isRepeated, oneof, typeName } = descriptor;
  const isMap = descriptors.mapEntries.has(typeName);
  return {
    ...{ number, name: camelCase(name), isRepeated, oneof, isMap },
    type: typeOf(descriptor),
  };
}

function typeOf({ type, typeName }: FieldDescriptor): FieldType {
  if (type === ENUM) {
    const names: string[] = [];
    for (const [number, name] of descriptors.enums.get(typeName) ?? []) names[number] = name;
    return names;
  }
  return scalarTypes[type] ?? servedType(typeName);
}
