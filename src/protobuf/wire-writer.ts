/** Size of an integer from 0 to 2^53-1 as a varint, in bytes. */
export function varintSize(value: number): number {
  let size = 1;
  let rest = value;
  while (rest >= 0x80) {
    rest = Math.floor(rest / 0x80);
    size++;
  }
  return size;
}

/** Size of a non-negative integer of up to 64 bits as a varint, in bytes. */
export function bigVarintSize(value: bigint): number {
  let size = 1;
  for (let rest = value >> 7n; rest > 0n; rest >>= 7n) size++;
  return size;
}

/** Size of a number field in bytes, with its tag of one byte; 0 for the number 0, which is not written. */
export function numberFieldSize(value: number): number {
  return value === 0 ? 0 : 1 + varintSize(value);
}

/** Size of a number field of up to 64 bits in bytes, as `numberFieldSize`. */
export function bigFieldSize(value: bigint): number {
  return value === 0n ? 0 : 1 + bigVarintSize(value);
}

/** Size of a length-delimited field in bytes, with its tag of one byte and its length. */
export function bytesFieldSize(length: number): number {
  return 1 + varintSize(length) + length;
}

/**
 * Writes the protobuf wire format into a buffer of a size that was computed before. Tags are of one byte, which
 * suffices for the fields 1 to 15: `number << 3 | wireType`.
 */
export class WireWriter {
  #bytes: Buffer;
  #position = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get bytes(): Buffer {
    return this.#bytes;
  }

  /** Continues in this buffer, from this position on. */
  moveTo(bytes: Buffer, position: number): void {
    this.#bytes = bytes;
    this.#position = position;
  }

  byte(value: number): void {
    this.#bytes[this.#position++] = value;
  }

  /** Position of the next byte. */
  get position(): number {
    return this.#position;
  }

  /** Writes an integer from 0 to 2^53-1. */
  varint(value: number): void {
    let rest = value;
    // Bit operations have 32 bits. Larger numbers are rare enough for division.
    while (rest >= 0x8000_0000) {
      this.byte((rest % 0x80) | 0x80);
      rest = Math.floor(rest / 0x80);
    }
    while (rest >= 0x80) {
      this.byte((rest & 0x7f) | 0x80);
      rest >>>= 7;
    }
    this.byte(rest);
  }

  bigVarint(value: bigint): void {
    let rest = value;
    while (rest >= 0x80n) {
      this.byte(Number(rest & 0x7fn) | 0x80);
      rest >>= 7n;
    }
    this.byte(Number(rest));
  }

  /** Writes gRPC's prefix of an uncompressed message of this size. */
  prefix(size: number): void {
    this.byte(0);
    this.#bytes.writeUInt32BE(size, this.#position);
    this.#position += 4;
  }

  /** Writes a number field, unless the number is 0. */
  numberField(tag: number, value: number): void {
    if (value === 0) return;
    this.byte(tag);
    this.varint(value);
  }

  /** Writes a number field of up to 64 bits, unless the number is 0. */
  bigField(tag: number, value: bigint): void {
    if (value === 0n) return;
    this.byte(tag);
    this.bigVarint(value);
  }

  /** Writes a text field. `size` is the text's size in UTF-8, in bytes. */
  textField(tag: number, text: string, size: number): void {
    this.byte(tag);
    this.varint(size);
    this.#position += this.#bytes.write(text, this.#position, size, "utf8");
  }

  /** Writes text without a tag. `size` is its size in UTF-8, in bytes. */
  text(text: string, size: number): void {
    this.#position += this.#bytes.write(text, this.#position, size, "utf8");
  }

  /** Copies encoded fields: the part of `content` from `start` to `end`. */
  copy(content: Uint8Array, start: number, end: number): void {
    // Takes any bytes, and needs no view of the part.
    Buffer.prototype.copy.call(content, this.#bytes, this.#position, start, end);
    this.#position += end - start;
  }

  /** Copies encoded fields. */
  raw(fields: Uint8Array): void {
    this.#bytes.set(fields, this.#position);
    this.#position += fields.byteLength;
  }
}
