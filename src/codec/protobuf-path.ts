import type { Descriptors, FieldDescriptor } from "../protobuf/descriptors.ts";
import {
  FIXED32,
  FIXED64,
  LENGTH_DELIMITED,
  type MessageCursor,
  VARINT,
} from "../protobuf/message-cursor.ts";

/** A field of a path, and the message type that declares it. */
export interface PathStep {
  readonly typeName: string;
  readonly field: FieldDescriptor;
}

/** The resolved path, or its problem. */
export type ResolvedPath =
  | { readonly steps: readonly PathStep[]; readonly problem?: undefined }
  | { readonly problem: string };

// Numbers of google.protobuf.FieldDescriptorProto.Type.
const GROUP = 10;
const MESSAGE = 11;
const BYTES = 12;
const ENUM = 14;
const STRING = 9;

/** How the field's values are read; undefined if they are not scalars that have a text. */
export function scalarRuleOf(
  descriptors: Descriptors,
  { type, typeName }: FieldDescriptor,
): ScalarRule | undefined {
  if (type !== ENUM) return scalarRules.get(type);
  const names = descriptors.enums.get(typeName);
  return names === undefined ? undefined : enumRule(names);
}

/** Resolves a path from a message to a single scalar. */
export function resolveField(
  descriptors: Descriptors,
  typeName: string,
  path: string,
): ResolvedPath {
  const way = resolve(descriptors, typeName, path);
  if (way.problem !== undefined) return way;
  const last = way.steps.at(-1)?.field;
  if (last === undefined || scalarRuleOf(descriptors, last) !== undefined) return way;
  const shown = JSON.stringify(path);
  if (last.type === BYTES) {
    return { problem: `${shown} is bytes, which selectors do not compare.` };
  }
  const below = (descriptors.messages.get(last.typeName) ?? []).map(({ name }) => name);
  const hint = below.length === 0 ? "" : ` Continue to one of its fields: ${listing(below)}.`;
  return {
    problem: `${shown} is a message, ${last.typeName}, but a field has to be a scalar.${hint}`,
  };
}

/** Resolves a path from a message to a `map<string, string>`. */
export function resolveLabels(
  descriptors: Descriptors,
  typeName: string,
  path: string,
): ResolvedPath {
  const parts = path.split(".");
  const way = resolve(descriptors, typeName, path, parts.length - 1);
  if (way.problem !== undefined) return way;
  const last = way.steps.at(-1)?.field;
  const entry = descriptors.mapEntries.has(last?.typeName ?? "")
    ? descriptors.messages.get(last?.typeName ?? "")
    : undefined;
  const isLabels = entry?.length === 2 && entry.every(({ type }) => type === STRING);
  if (isLabels) return way;
  return { problem: `${JSON.stringify(path)} is not a map<string, string>, as labels are.` };
}

/** Resolves a path of a mask: from a message through single messages to anything. */
export function resolveMasked(
  descriptors: Descriptors,
  typeName: string,
  path: string,
): ResolvedPath {
  return resolve(descriptors, typeName, path, path.split(".").length - 1);
}

/** `mayRepeat`: the index of the only step that may be repeated, as a map is; undefined: none may. */
function resolve(
  descriptors: Descriptors,
  root: string,
  path: string,
  mayRepeat?: number,
): ResolvedPath {
  const shown = JSON.stringify(path);
  const steps: PathStep[] = [];
  let typeName = root;
  for (const [index, name] of path.split(".").entries()) {
    const before = steps.at(-1)?.field;
    if (before !== undefined && before.type !== MESSAGE) {
      return { problem: `${shown}: ${before.name} is not a message, so that it has no ${name}.` };
    }
    const declared = descriptors.messages.get(typeName);
    if (declared === undefined) {
      return { problem: `${shown}: the descriptor set lacks ${typeName}; ${withImports}.` };
    }
    const field = declared.find((candidate) => candidate.name === name);
    if (field === undefined) {
      const there = listing(declared.map((candidate) => candidate.name));
      return {
        problem: `${shown}: ${typeName} has no field ${JSON.stringify(name)}; it has ${there}.`,
      };
    }
    if (field.repeated && index !== mayRepeat) {
      const what = descriptors.mapEntries.has(field.typeName) ? "a map" : "repeated";
      return { problem: `${shown}: ${name} is ${what}, but a path leads to a single value.` };
    }
    if (field.type === GROUP) {
      return { problem: `${shown}: ${name} is a group, which no path can go through.` };
    }
    if (field.type === ENUM && !descriptors.enums.has(field.typeName)) {
      return { problem: `${shown}: the descriptor set lacks ${field.typeName}; ${withImports}.` };
    }
    steps.push({ typeName, field });
    typeName = field.typeName;
  }
  return { steps };
}

const withImports = 'write it with its imports, as "buf build" and "protoc --include_imports" do';

/** A few names for an error message. */
export function listing(names: readonly string[]): string {
  if (names.length === 0) return "none";
  const shown = names.slice(0, 10).join(", ");
  return names.length > 10 ? `${shown} and ${names.length - 10} more` : shown;
}

/** How a scalar on the wire becomes the text that selectors compare. */
export interface ScalarRule {
  readonly wireType: number;
  /** The value of an absent field without presence. */
  readonly empty: string;
  readonly read: (cursor: MessageCursor) => string;
}

/**
 * The rules by the numbers of google.protobuf.FieldDescriptorProto.Type. Texts are those of protobuf's JSON mapping
 * (https://protobuf.dev/programming-guides/json/), but 64-bit integers are decimal digits, too.
 */
const scalarRules: ReadonlyMap<number, ScalarRule> = new Map([
  [1, fixed(8, "0", (bytes) => String(bytes.readDoubleLE()))], // double
  [2, fixed(4, "0", (bytes) => floatText(bytes.readFloatLE()))], // float
  [3, varint((bits) => BigInt.asIntN(64, bits))], // int64
  [4, varint((bits) => bits)], // uint64
  [5, varint((bits) => BigInt.asIntN(32, bits))], // int32
  [6, fixed(8, "0", (bytes) => String(bytes.readBigUInt64LE()))], // fixed64
  [7, fixed(4, "0", (bytes) => String(bytes.readUInt32LE()))], // fixed32
  [8, { wireType: VARINT, empty: "false", read: (cursor) => String(cursor.bigint() !== 0n) }], // bool
  [9, { wireType: LENGTH_DELIMITED, empty: "", read: (cursor) => cursor.text() }], // string
  [13, varint((bits) => BigInt.asUintN(32, bits))], // uint32
  [15, fixed(4, "0", (bytes) => String(bytes.readInt32LE()))], // sfixed32
  [16, fixed(8, "0", (bytes) => String(bytes.readBigInt64LE()))], // sfixed64
  [17, varint((bits) => zigzag(BigInt.asUintN(32, bits)))], // sint32
  [18, varint(zigzag)], // sint64
]);

/** The value's name; its digits if the number has no name. */
function enumRule(names: ReadonlyMap<number, string>): ScalarRule {
  const text = (number: number): string => names.get(number) ?? String(number);
  return {
    wireType: VARINT,
    empty: text(0),
    read: (cursor) => text(Number(BigInt.asIntN(32, cursor.bigint()))),
  };
}

function varint(number: (bits: bigint) => bigint): ScalarRule {
  return { wireType: VARINT, empty: "0", read: (cursor) => String(number(cursor.bigint())) };
}

function fixed(length: 4 | 8, empty: string, text: (bytes: Buffer) => string): ScalarRule {
  const wireType = length === 4 ? FIXED32 : FIXED64;
  return { wireType, empty, read: (cursor) => text(cursor.fixed(length)) };
}

function zigzag(bits: bigint): bigint {
  return (bits >> 1n) ^ -(bits & 1n);
}

/** With the digits of a float: the float nearest to 0.1 is not 0.10000000149011612. */
function floatText(value: number): string {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return String(short);
  }
  return String(value);
}
