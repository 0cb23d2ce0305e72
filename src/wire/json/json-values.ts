import { isUtf8 } from "node:buffer";
import { GrowingBuffer } from "../../base/growing-buffer.ts";
import { InvalidJson } from "./invalid-json.ts";

const OPEN_OBJECT = 0x7b;
const OPEN_ARRAY = 0x5b;
const CLOSE_OBJECT = 0x7d;
const CLOSE_ARRAY = 0x5d;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

function isSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

/**
 * Maximum number of objects, arrays and their members in one value: parsing them takes time and memory, not their bytes. It is
 * one step, of 20 ms with numbers that JavaScript does not hold exactly. 2,000 operations of a transaction fit.
 */
const maxParts = 10_000;

/** How much of a text that is no request is named in the error, in characters. */
const maxNamed = 256;

/** Splits the body of a request into the JSON objects that follow one another in it. */
export class JsonValues {
  readonly #bytes = new GrowingBuffer();
  /** How much of the first value has been looked at, and what is open there. */
  #position = 0;
  #depth = 0;
  #parts = 0;
  #isInString = false;

  /** Size of what is held, in bytes. */
  get size(): number {
    return this.#bytes.length;
  }

  /** Memory of what is held, in bytes. */
  get heldBytes(): number {
    return this.#bytes.memoryBytes;
  }

  add(chunk: Buffer): void {
    this.#bytes.append(chunk, Infinity);
  }

  /** Takes the text of the next value; undefined: it has not arrived. Throws InvalidJson for one that is not an object or array. */
  next(): string | undefined {
    const bytes = this.#bytes.bytes;
    const end = this.#endOfValue(bytes);
    if (end === undefined) return undefined;
    const value = bytes.subarray(0, end);
    if (!isUtf8(value)) throw new InvalidJson("proto: syntax error: invalid UTF-8");
    const text = value.toString("utf8");
    this.#bytes.drop(end);
    this.#position = 0;
    this.#parts = 0;
    return text;
  }

  /** Whether nothing but white space is left. */
  get isEmpty(): boolean {
    const { bytes } = this.#bytes;
    let at = 0;
    while (at < bytes.length && isSpace(bytes[at] as number)) at++;
    return at === bytes.length;
  }

  /** Makes what is held keep no larger buffer alive. */
  own(): void {
    this.#bytes.own();
  }

  clear(): void {
    this.#bytes.clear();
  }

  /** Each byte costs a few comparisons, since a request may consist of white space alone. */
  #endOfValue(bytes: Buffer): number | undefined {
    let position = this.#position;
    for (; position < bytes.length; position++) {
      const byte = bytes[position] as number;
      if (this.#isInString) {
        if (byte === BACKSLASH) position++;
        else if (byte === QUOTE) this.#isInString = false;
      } else if (isSpace(byte)) {
      } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        this.#depth++;
        this.#count();
      } else if (this.#depth === 0) {
        const named = bytes.subarray(position, position + maxNamed);
        throw new InvalidJson(unexpected(named.toString("utf8")));
      } else if (byte === QUOTE) {
        this.#isInString = true;
      } else if (byte === COMMA) {
        this.#count();
      } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
        this.#depth--;
        if (this.#depth > 0) continue;
        this.#position = position + 1;
        return this.#position;
      }
    }
    this.#position = position;
    return undefined;
  }

  #count(): void {
    this.#parts++;
    if (this.#parts <= maxParts) return;
    throw new InvalidJson(`the request has more than ${maxParts} values`);
  }
}

/** Says what is wrong with a text that begins neither an object nor an array. */
function unexpected(text: string): string {
  const token = /^(?:"(?:[^"\\]|\\.)*"|null|true|false|-?\d[\d.eE+-]*)/.exec(text)?.[0];
  return token === undefined
    ? `invalid character '${text[0]}' looking for beginning of value`
    : `proto: syntax error: unexpected token ${token}`;
}
