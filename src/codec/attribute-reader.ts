import type { Clock } from "../base/clock.ts";
import { LineLimit, type Logger } from "../base/logger.ts";
import { type Attributes, undecodableAttributes } from "../selector/attributes.ts";
import type { Codec } from "./codec.ts";

/** Minimum interval between log lines, in milliseconds. */
const logIntervalMs = 60_000;

/**
 * Reads the attributes of a resource's objects. An object whose value can't be decoded has no attributes; it is counted
 * each time it is read, and logged at most once per interval. Caches nothing: callers keep the attributes.
 */
export class AttributeReader {
  readonly codec: Codec;
  readonly #logger: Logger;
  readonly #lineLimit: LineLimit;
  #undecodable = 0;

  constructor(codec: Codec, clock: Clock, logger: Logger) {
    this.codec = codec;
    this.#logger = logger;
    this.#lineLimit = new LineLimit(clock, logIntervalMs);
  }

  /** Number of times that a value could not be decoded. */
  get undecodable(): number {
    return this.#undecodable;
  }

  attributesOf(object: { readonly key: string; readonly value: Uint8Array }): Attributes {
    const attributes = this.codec.attributesOf(object.value);
    if (attributes !== undefined) return attributes;
    this.#undecodable++;
    this.#log(object.key);
    return undecodableAttributes;
  }

  #log(key: string): void {
    const suppressed = this.#lineLimit.admit();
    if (suppressed === undefined) return;
    this.#logger.warn(
      {
        key,
        codec: this.codec.name,
        sinceLastLine: suppressed + 1,
        undecodable: this.#undecodable,
      },
      "a value can't be decoded: the object is served without labels and fields",
    );
  }
}
