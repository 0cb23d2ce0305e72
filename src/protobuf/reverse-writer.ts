import { newBytes, textBytes } from "./text.ts";
import { bigVarintSize, varintSize } from "./wire-writer.ts";

/** Size of the first buffer, in bytes. Most requests fit. */
const initialBytes = 128;

/**
 * Writes a protobuf message from its end to its beginning: the size of a nested message is known when its length is written,
 * so nothing is computed before and nothing is moved after.
 */
export class ReverseWriter {
  #bytes = newBytes(initialBytes);
  /** Position of the first byte that is written. */
  #start = initialBytes;

  /** Number of bytes that are written. */
  get size(): number {
    return this.#bytes.byteLength - this.#start;
  }

  /** What was written, in the order of the message. */
  finish(): Uint8Array {
    return this.#bytes.subarray(this.#start);
  }

  /** Writes an integer from 0 to 2^53-1. */
  varint(value: number): void {
    let at = this.#reserve(varintSize(value));
    let rest = value;
    for (; rest >= 0x80; rest = Math.floor(rest / 0x80)) this.#bytes[at++] = (rest % 0x80) | 0x80;
    this.#bytes[at] = rest;
  }

  /** Writes an integer of up to 64 bits, which may be negative. */
  bigVarint(value: bigint): void {
    let rest = BigInt.asUintN(64, value);
    let at = this.#reserve(bigVarintSize(rest));
    for (; rest >= 0x80n; rest >>= 7n) this.#bytes[at++] = Number(rest & 0x7fn) | 0x80;
    this.#bytes[at] = Number(rest);
  }

  fixed64(value: bigint): void {
    const at = this.#reserve(8);
    for (let i = 0; i < 8; i++) this.#bytes[at + i] = Number((value >> BigInt(8 * i)) & 0xffn);
  }

  raw(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.byteLength);
    this.#bytes.set(bytes, at);
  }

  text(text: string): void {
    this.raw(textBytes(text));
  }

  /** Makes room for this number of bytes, and returns their position. */
  #reserve(size: number): number {
    if (size > this.#start) {
      const used = this.#bytes.subarray(this.#start);
      const larger = newBytes(Math.max(this.#bytes.byteLength * 2, used.byteLength + size));
      this.#start = larger.byteLength - used.byteLength;
      larger.set(used, this.#start);
      this.#bytes = larger;
    }
    this.#start -= size;
    return this.#start;
  }
}
