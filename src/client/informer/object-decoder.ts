import type { StoredObject } from "../../model/object.ts";
import { DecodeFailure, decodeTyped, type TypedObject } from "../values/typed-object.ts";
import type { ValueCodec } from "../values/value-codec.ts";
import { type RejectedObjectError, TransformFailure } from "./handlers/informer-errors.ts";

/** Decodes stored objects and applies the transform of the application. */
export class ObjectDecoder<T> {
  readonly #codec: ValueCodec<T>;
  readonly #resource: string;
  readonly #transform: ((object: TypedObject<T>) => TypedObject<T>) | undefined;

  constructor(
    codec: ValueCodec<T>,
    resource: string,
    transform: ((object: TypedObject<T>) => TypedObject<T>) | undefined,
  ) {
    this.#codec = codec;
    this.#resource = resource;
    this.#transform = transform;
  }

  /** Returns the object, or the reason why it is rejected. Never throws. */
  decode(stored: StoredObject): TypedObject<T> | RejectedObjectError {
    const object = decodeTyped(stored, this.#codec, this.#resource);
    if (object instanceof DecodeFailure || this.#transform === undefined) return object;
    try {
      const transformed = this.#transform(object);
      if (transformed.key === object.key) return transformed;
      throw new TypeError(`it returned an object with the key ${JSON.stringify(transformed.key)}.`);
    } catch (error) {
      return new TransformFailure(stored.key, stored.modRevision, error);
    }
  }
}
