import {
  FIXED32,
  FIXED64,
  LENGTH_DELIMITED,
  type MessageCursor,
  VARINT,
} from "../protobuf/message-cursor.ts";

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
export const scalarRules: ReadonlyMap<number, ScalarRule> = new Map([
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
export function enumRule(names: ReadonlyMap<number, string>): ScalarRule {
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
