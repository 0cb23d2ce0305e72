/** The scalar types of fields, as protos name them. */
export const scalars = [
  "bool",
  "bytes",
  "fixed64",
  "int32",
  "int64",
  "string",
  "uint32",
  "uint64",
] as const;

export type Scalar = (typeof scalars)[number];

/** The type of a field: a scalar, a message, or an enum with its names by number. */
export type FieldType = Scalar | Message | readonly string[];

/** A field of a message. */
export interface Field {
  readonly number: number;
  /** Its name in JSON that is written. */
  readonly name: string;
  readonly type: FieldType;
  readonly isRepeated: boolean;
  /** Whether it is a map. Its type is the message of an entry then. */
  readonly isMap?: boolean;
  /** The oneof that it belongs to; undefined: none. */
  readonly oneof: string | undefined;
}

/** A message, as its JSON needs it. */
export interface Message {
  readonly package: string;
  /** Without its package. */
  readonly name: string;
  readonly byNumber: ReadonlyMap<number, Field>;
  /** By the names that JSON may have: that of the proto, and the same in camel case. */
  readonly byName: ReadonlyMap<string, Field>;
  /** Whether JSON with a field that it does not have is refused. Otherwise that is ignored. */
  readonly isStrict: boolean;
}

/** As JSON of protobuf names a field of the proto. */
export function camelCase(name: string): string {
  return name.replace(/_([a-z\d])/g, (_, letter: string) => letter.toUpperCase());
}
