import { hasBuffer, textOf } from "./text.ts";

/** An error in bytes that should be a protobuf message. Its message is the predicate of a sentence. */
export class WireFault extends Error {
  override readonly name = "WireFault";
}

/** Wire types, as the protobuf encoding numbers them. */
export const VARINT = 0;
export const FIXED64 = 1;
export const LENGTH_DELIMITED = 2;
const GROUP_START = 3;
const GROUP_END = 4;
export const FIXED32 = 5;

/** Maximum depth of nested groups in skipped fields. Other decoders, too, refuse deeper nesting, which is an attack. */
const maxGroupDepth = 100;

/**
 * Reads the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) in place. It suits messages with
 * a hundred thousand parts: a nested message is read by the same cursor, and `content` allocates nothing.
 * Everything invalid throws a WireFault.
 *
 *     for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
 *       if (tag === 0x08) revision = cursor.number();
 *       else cursor.skip(tag);
 *     }
 */
export class MessageCursor {
  /** In a browser a plain Uint8Array: what only a Buffer can is left to Node.js. */
  readonly bytes: Buffer;
  /** Start of the content that was read last; `end` is its end. */
  start = 0;
  end = 0;
  #position = 0;
  /** End of the current message. */
  #limit: number;

  constructor(bytes: Uint8Array) {
    const { buffer, byteOffset, byteLength } = bytes;
    const isReady = !hasBuffer || Buffer.isBuffer(bytes);
    this.bytes = isReady ? (bytes as Buffer) : Buffer.from(buffer, byteOffset, byteLength);
    this.#limit = byteLength;
  }

  /** Position behind what was read last. */
  get position(): number {
    return this.#position;
  }

  /** Whether the current message, or the packed numbers that were entered, have not been read to their end. */
  get hasMore(): boolean {
    return this.#position < this.#limit;
  }

  /**
   * Returns the tag of the next field: its number, shifted by three, and its wire type. Returns 0 at the end of the
   * message. The caller then reads or skips the field's value.
   */
  next(): number {
    if (this.#position === this.#limit) return 0;
    const tag = this.number();
    if (tag < 0 || tag > 0xffff_ffff) throw new WireFault("has a field number above 536870911");
    if (tag < 8) throw new WireFault("has a field with the number 0");
    if ((tag & 7) > FIXED32) throw new WireFault(`has an unknown wire type, ${tag & 7}`);
    return tag;
  }

  /** Reads an integer, signed if it has 64 bits: a bigint if it has more than 49. */
  integer(): number | bigint {
    let value = 0;
    let scale = 1;
    const from = this.#position;
    // Seven bytes have 49 bits.
    for (let i = 0; i < 7; i++) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    this.#position = from;
    return BigInt.asIntN(64, this.bigint());
  }

  /** As `integer`. Throws if a number can't hold it exactly. */
  number(): number {
    const integer = this.integer();
    if (typeof integer === "number") return integer;
    const number = Number(integer);
    if (Number.isSafeInteger(number)) return number;
    throw new WireFault(`has the number ${integer}, which is beyond the limit of 2^53`);
  }

  /** Reads an integer that must not be negative. */
  natural(): number {
    const number = this.number();
    if (number < 0) throw new WireFault(`has the number ${number}, which is negative`);
    return number;
  }

  /** Reads an unsigned integer of 64 bits. */
  bigint(): bigint {
    let low = 0; // bits 0 to 27
    let middle = 0; // bits 28 to 55
    let high = 0; // bits 56 to 63
    for (let i = 0; i < 10; i++) {
      const byte = this.#byte();
      const bits = byte & 0x7f;
      if (i < 4) low |= bits << (7 * i);
      else if (i < 8) middle |= bits << (7 * (i - 4));
      else if (i === 8) high = bits;
      else if (bits > 1) break;
      else high |= bits << 7;
      if (byte < 0x80) {
        if (i < 4) return BigInt(low);
        return (BigInt(high) << 56n) | (BigInt(middle) << 28n) | BigInt(low);
      }
    }
    throw new WireFault("has a number of more than 64 bits");
  }

  /** Returns a view of a fixed-size number, least significant byte first. */
  fixed(length: 4 | 8): Buffer {
    const start = this.#position;
    this.#advance(length);
    return this.bytes.subarray(start, this.#position);
  }

  /** Skips the content of a length-delimited field and sets `start` and `end` to its position. */
  content(): void {
    const length = this.number();
    const left = this.#limit - this.#position;
    if (length < 0 || length > left) {
      const announced = BigInt.asUintN(64, BigInt(length));
      throw new WireFault(`is truncated: its length is ${announced} bytes, ${left} are left`);
    }
    this.start = this.#position;
    this.end = this.start + length;
    this.#position = this.end;
  }

  /** As `content`; returns a view. */
  view(): Buffer {
    this.content();
    return this.bytes.subarray(this.start, this.end);
  }

  /** As `content`; returns text. */
  text(): string {
    const text = textOf(this.view());
    if (text === undefined) throw new WireFault("is not valid UTF-8");
    return text;
  }

  /** Enters the message in this field: reads end at its end until `leave`, which takes the returned value. */
  enter(): number {
    const outer = this.#limit;
    this.content();
    this.#position = this.start;
    this.#limit = this.end;
    return outer;
  }

  /** Continues the message around the one that has been read. */
  leave(outer: number): void {
    this.#limit = outer;
  }

  /** Continues with the message from `start` up to `end`, as `content` set them. */
  moveTo(start: number, end: number): void {
    this.#position = start;
    this.#limit = end;
  }

  /** Skips the value of the field with this tag. */
  skip(tag: number, depth: number = 0): void {
    switch (tag & 7) {
      case VARINT:
        this.bigint();
        return;
      case FIXED64:
        this.#advance(8);
        return;
      case LENGTH_DELIMITED:
        this.content();
        return;
      case FIXED32:
        this.#advance(4);
        return;
      case GROUP_START:
        this.#skipGroup(tag, depth + 1);
        return;
      default:
        throw new WireFault("ends a group that has not begun");
    }
  }

  #skipGroup(start: number, depth: number): void {
    if (depth > maxGroupDepth) throw new WireFault("has groups nested too deeply");
    const end = start - GROUP_START + GROUP_END;
    for (let tag = this.next(); tag !== end; tag = this.next()) {
      if (tag === 0) throw new WireFault("is truncated within a group");
      if ((tag & 7) === GROUP_END)
        throw new WireFault("ends a group with a different number than it began");
      this.skip(tag, depth);
    }
  }

  #advance(length: number): void {
    if (this.#limit - this.#position < length) throw new WireFault("is truncated");
    this.#position += length;
  }

  #byte(): number {
    if (this.#position >= this.#limit) throw new WireFault("is truncated within a number");
    return this.bytes[this.#position++] as number;
  }
}
