/**
 * Decodes and encodes the values of a resource. If `decode` throws, the value counts as undecodable (see
 * DecodeFailure). What `encode` throws, the write rejects with.
 */
export interface ValueCodec<T> {
  /** Decodes a value. `value` is shared and must not be modified. `key` is the key of the object. */
  decode(value: Uint8Array, key: string): T;
  /** Encodes a value. */
  encode(object: T): Uint8Array;
}

const decoder = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/** The codecs of `jsonValues` by their checks, so that informers of one check can be shared. */
const jsonCodecs = new WeakMap<(parsed: unknown) => unknown, ValueCodec<unknown>>();

const unchecked = (parsed: unknown): unknown => parsed;

/**
 * A codec for JSON in UTF-8, the same for the same `check`. That validates the parsed value and returns it as a `T`, or
 * throws; the parse function of any validator will do. Without it, values are not validated.
 */
export function jsonValues<T>(check?: (parsed: unknown) => T): ValueCodec<T> {
  const accept = check ?? (unchecked as (parsed: unknown) => T);
  const known = jsonCodecs.get(accept);
  // The check is that of its type.
  if (known !== undefined) return known as ValueCodec<T>;
  const codec = jsonCodecOf(accept);
  jsonCodecs.set(accept, codec as ValueCodec<unknown>);
  return codec;
}

function jsonCodecOf<T>(accept: (parsed: unknown) => T): ValueCodec<T> {
  return {
    decode: (value) => accept(JSON.parse(decoder.decode(value))),
    encode: (object) => {
      const text: string | undefined = JSON.stringify(object);
      if (text === undefined) throw new TypeError(`A ${typeof object} can't be encoded as JSON.`);
      return encoder.encode(text);
    },
  };
}

/** A message type of protobufjs or ts-proto. */
export interface WriterMessageType<T> {
  /** Decodes a message. */
  decode(bytes: Uint8Array): T;
  /** Returns a writer, whose `finish` encodes the message. */
  encode(message: T): { finish(): Uint8Array };
}

/** A message type of protobuf-ts, or the two functions of protobuf-es as an object. */
export interface BinaryMessageType<T> {
  /** Decodes a message. */
  fromBinary(bytes: Uint8Array): T;
  /** Encodes a message. */
  toBinary(message: T): Uint8Array;
}

/**
 * A codec for protobuf messages of one type. Takes the types of protobufjs, ts-proto and protobuf-ts as they are, and
 * the two functions of protobuf-es:
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

/** A codec that passes values through. A decoded value is shared and must not be modified. */
export const bytes: ValueCodec<Uint8Array> = {
  decode: (value) => value,
  encode: (value) => value,
};
