import { FIXED32, FIXED64, LENGTH_DELIMITED, VARINT, WireFault } from "./wire-reader.ts";

const GROUP_START = 3;
const GROUP_END = 4;

/** Groups within groups in what is skipped: deeper is an attack. */
const maxGroupDepth = 100;

/**
 * Reads the protobuf wire format in place, for messages that come by the hundred thousand: nothing is
 * allocated, a message within a message is read by the same cursor, and content is told by where it is.
 * It takes nothing on trust, as WireReader does not: whatever is not exactly right throws a WireFault.
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

  constructor(bytes: Buffer) {
    this.bytes = bytes;
    this.#limit = bytes.length;
  }

  /**
   * The tag of the next field, which is its number, shifted by three, and its wire type; 0 at the end of
   * the message. The field's value has to be read or skipped.
   */
  next(): number {
    if (this.#position === this.#limit) return 0;
    const tag = this.number();
    if (tag < 8 || tag > 0xffff_ffff) throw new WireFault("has a field without a valid number");
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
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.#byte();
      if (shift === 63n && byte > 1) break;
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw new WireFault("has a number of more than 64 bits");
  }

  /** Passes over the content of a length-delimited field and notes where it is: `start` and `end`. */
  content(): void {
    const length = this.natural();
    const left = this.#limit - this.#position;
    if (length > left) {
      throw new WireFault(`is cut off: ${length} bytes announced, ${left} there`);
    }
    this.start = this.#position;
    this.end = this.start + length;
    this.#position = this.end;
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
