/**
 * Turns values into objects of the user's own and back. What `decode` throws is handled where it is called:
 * the value counts as one that can't be decoded. What `encode` throws, the call that writes throws.
 */
export interface ValueCodec<T> {
  /** `value` is shared with others and must not be changed. `key` is the key of the object. */
  decode(value: Uint8Array, key: string): T;
  encode(object: T): Uint8Array;
}

const decoder = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/**
 * Values that are JSON in UTF-8. `check` makes a T of what was parsed, or throws: any validator's parse
 * function does. Without it, a value is taken for a T unseen.
 */
export function jsonValues<T>(check?: (parsed: unknown) => T): ValueCodec<T> {
  const accept = check ?? ((parsed: unknown) => parsed as T);
  return {
    decode: (value) => accept(JSON.parse(decoder.decode(value))),
    encode: (object) => {
      const text: string | undefined = JSON.stringify(object);
      if (text === undefined) throw new TypeError(`A ${typeof object} has no form in JSON.`);
      return encoder.encode(text);
    },
  };
}

/** A message type as protobufjs and ts-proto make them. */
export interface WriterMessageType<T> {
  decode(bytes: Uint8Array): T;
  encode(message: T): { finish(): Uint8Array };
}

/** A message type as protobuf-ts makes them, and as the two functions of protobuf-es are put together to. */
export interface BinaryMessageType<T> {
  fromBinary(bytes: Uint8Array): T;
  toBinary(message: T): Uint8Array;
}

/**
 * Values that are protobuf messages of one type. Takes the types of protobufjs, ts-proto and protobuf-ts as
 * they are; of protobuf-es its two functions:
 *
 *     protobufValues({
 *       fromBinary: (bytes) => fromBinary(PodSchema, bytes),
 *       toBinary: (pod) => toBinary(PodSchema, pod),
 *     })
 */
export function protobufValues<T>(
  type: WriterMessageType<T> | BinaryMessageType<T>,
): ValueCodec<T> {
  if ("fromBinary" in type) {
    return {
      decode: (value) => type.fromBinary(value),
      encode: (message) => type.toBinary(message),
    };
  }
  return {
    decode: (value) => type.decode(value),
    encode: (message) => type.encode(message).finish(),
  };
}

/** Values as they are. What `decode` gives is shared and must not be changed. */
export const bytes: ValueCodec<Uint8Array> = {
  decode: (value) => value,
  encode: (value) => value,
};
