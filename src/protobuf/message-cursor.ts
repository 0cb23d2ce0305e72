import { isUtf8 } from "node:buffer";

/** What is wrong with bytes that should be a protobuf message; the message is half a sentence. */
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

/** Maximum depth of groups within groups in what is skipped. Deeper nesting is an attack; other decoders refuse it, too. */
const maxGroupDepth = 100;

/**
 * Reads the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) in place, also for messages that
 * come by the hundred thousand: a nested message is read by the same cursor, and `content` allocates nothing.
 * It trusts nothing: whatever is not exactly right throws a WireFault.
 *
 *     for (let tag = cursor.next(); tag !== 0; tag = cursor.next()) {
 *       if (tag === 0x08) revision = cursor.number();
 *       else cursor.skip(tag);
 *     }
 */
export class MessageCursor {
  readonly bytes: Buffer;
  /** Where the content is that was read last. */
  start = 0;
  end = 0;
  #position = 0;
  /** Where the message ends that is being read. */
  #limit: number;

  constructor(bytes: Uint8Array) {
    const { buffer, byteOffset, byteLength } = bytes;
    this.bytes = Buffer.isBuffer(bytes) ? bytes : Buffer.from(buffer, byteOffset, byteLength);
    this.#limit = byteLength;
  }

  /**
   * The tag of the next field, which is its number, shifted by three, and its wire type; 0 at the end of
   * the message. The field's value has to be read or skipped.
   */
  next(): number {
    if (this.#position === this.#limit) return 0;
    const tag = this.number();
    if (tag < 0 || tag > 0xffff_ffff) throw new WireFault("has a field number above 536870911");
    if (tag < 8) throw new WireFault("has a field with the number 0");
    if ((tag & 7) > FIXED32) throw new WireFault(`has an unknown wire type, ${tag & 7}`);
    return tag;
  }

  /** A whole number, signed where it is of 64 bits; one that a number can't hold exactly is a fault. */
  number(): number {
    let value = 0;
    let scale = 1;
    const from = this.#position;
    // Seven bytes are 49 bits.
    for (let i = 0; i < 7; i++) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 0x80;
    }
    this.#position = from;
    const large = BigInt.asIntN(64, this.bigint());
    const number = Number(large);
    if (Number.isSafeInteger(number)) return number;
    throw new WireFault(`has the number ${large}, which is beyond 2^53 and can't be held exactly`);
  }

  /** A whole number that can't be negative. */
  natural(): number {
    const number = this.number();
    if (number < 0) throw new WireFault(`has the number ${number} where none is negative`);
    return number;
  }

  /** A whole number of 64 bits, unsigned. */
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

  /** A view of the bytes of a fixed-size number, least significant first. */
  fixed(length: 4 | 8): Buffer {
    const start = this.#position;
    this.#advance(length);
    return this.bytes.subarray(start, this.#position);
  }

  /** Passes over the content of a length-delimited field and notes where it is: `start` and `end`. */
  content(): void {
    const length = this.number();
    const left = this.#limit - this.#position;
    if (length < 0 || length > left) {
      const announced = BigInt.asUintN(64, BigInt(length));
      throw new WireFault(`is cut off: ${announced} bytes announced, ${left} there`);
    }
    this.start = this.#position;
    this.end = this.start + length;
    this.#position = this.end;
  }

  /** As `content`, as a view. */
  view(): Buffer {
    this.content();
    return this.bytes.subarray(this.start, this.end);
  }

  /** As `content`, as text. */
  text(): string {
    const view = this.view();
    if (!isUtf8(view)) throw new WireFault("is not valid UTF-8");
    return view.toString("utf8");
  }

  /** Begins to read the message that the field is; its end is the end until `leave`, which takes the result. */
  enter(): number {
    const outer = this.#limit;
    this.content();
    this.#position = this.start;
    this.#limit = this.end;
    return outer;
  }

  /** Goes on with the message around the one that has come to its end. */
  leave(outer: number): void {
    this.#limit = outer;
  }

  /** Goes on with the message that lies from `start` up to `end`, as `content` found it. */
  moveTo(start: number, end: number): void {
    this.#position = start;
    this.#limit = end;
  }

  /** Passes over the value of the field that has this tag. */
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
      if (tag === 0) throw new WireFault("is cut off within a group");
      if ((tag & 7) === GROUP_END) throw new WireFault("ends another group than it began");
      this.skip(tag, depth);
    }
  }

  #advance(length: number): void {
    if (this.#limit - this.#position < length) throw new WireFault("is cut off");
    this.#position += length;
  }

  #byte(): number {
    if (this.#position >= this.#limit) throw new WireFault("is cut off within a number");
    return this.bytes[this.#position++] as number;
  }
}
