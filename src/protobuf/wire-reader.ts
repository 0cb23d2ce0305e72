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

/** Groups within groups in what is skipped: deeper is an attack, as other decoders have it, too. */
const maxGroupDepth = 100;

/**
 * Reads the protobuf wire format field by field, and takes nothing on trust: whatever is not exactly
 * right throws a WireFault. See https://protobuf.dev/programming-guides/encoding/
 */
export class WireReader {
  readonly #bytes: Buffer;
  #position = 0;
  /** Of the field that `next` has come to. */
  field = 0;
  wireType = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Goes on to the next field; false at the end. Its value has to be read or skipped. */
  next(): boolean {
    if (this.#position === this.#bytes.length) return false;
    const tag = this.varint();
    if (tag > 0xffff_ffffn) throw new WireFault("has a field number above 536870911");
    this.field = Number(tag >> 3n);
    this.wireType = Number(tag & 7n);
    if (this.field === 0) throw new WireFault("has a field with the number 0");
    if (this.wireType > FIXED32) throw new WireFault(`has an unknown wire type, ${this.wireType}`);
    return true;
  }

  /** An unsigned number of up to 64 bits. */
  varint(): bigint {
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
    return this.#bytes.subarray(start, this.#position);
  }

  /** A view of the content of a length-delimited field. */
  content(): Buffer {
    const length = this.varint();
    const left = this.#bytes.length - this.#position;
    if (length > left) throw new WireFault(`is cut off: ${length} bytes announced, ${left} there`);
    const start = this.#position;
    this.#position += Number(length);
    return this.#bytes.subarray(start, this.#position);
  }

  text(): string {
    const content = this.content();
    if (!isUtf8(content)) throw new WireFault("is not valid UTF-8");
    return content.toString("utf8");
  }

  /** Passes over the value of the field that `next` has come to. */
  skip(depth = 0): void {
    switch (this.wireType) {
      case VARINT:
        this.varint();
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
        this.#skipGroup(this.field, depth + 1);
        return;
      default:
        throw new WireFault("ends a group that has not begun");
    }
  }

  #skipGroup(number: number, depth: number): void {
    if (depth > maxGroupDepth) throw new WireFault("has groups nested too deeply");
    while (this.next()) {
      if (this.wireType !== GROUP_END) {
        this.skip(depth);
      } else if (this.field === number) {
        return;
      } else {
        throw new WireFault("ends another group than it began");
      }
    }
    throw new WireFault("is cut off within a group");
  }

  #byte(): number {
    const byte = this.#bytes[this.#position];
    if (byte === undefined) throw new WireFault("is cut off within a number");
    this.#position++;
    return byte;
  }

  #advance(length: number): void {
    if (this.#bytes.length - this.#position < length) throw new WireFault("is cut off");
    this.#position += length;
  }
}
