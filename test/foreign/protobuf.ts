/**
 * Protobuf's wire format, written by hand, so that tests and benchmarks do not use the code that they check
 * (https://protobuf.dev/programming-guides/encoding/).
 */
export type FieldValue = string | number | bigint | boolean | Uint8Array;

/** Fields by number: text and bytes as length-delimited, numbers and booleans as varints. */
export type Fields = Readonly<Record<number, FieldValue | readonly FieldValue[] | undefined>>;

export function encode(fields: Fields): Buffer {
  const chunks: Uint8Array[] = [];
  for (const [number, value] of Object.entries(fields)) {
    const values = Array.isArray(value) ? value : [value];
    for (const one of values) if (one !== undefined) encodeField(chunks, Number(number), one);
  }
  return Buffer.concat(chunks);
}

function encodeField(chunks: Uint8Array[], number: number, value: FieldValue): void {
  if (typeof value === "string" || value instanceof Uint8Array) {
    const bytes = Buffer.from(value);
    chunks.push(varint(BigInt((number << 3) | 2)), varint(BigInt(bytes.length)), bytes);
  } else {
    chunks.push(varint(BigInt(number << 3)), varint(BigInt.asUintN(64, BigInt(value))));
  }
}

function varint(value: bigint): Uint8Array {
  const bytes: number[] = [];
  let rest = value;
  while (rest > 0x7fn) {
    bytes.push(Number(rest & 0x7fn) | 0x80);
    rest >>= 7n;
  }
  bytes.push(Number(rest));
  return Uint8Array.from(bytes);
}

/** A parsed message: the values of each field number, in the order in which they arrived. */
export class Message {
  readonly #fields = new Map<number, (bigint | Buffer)[]>();

  /** Throws for bytes that end within a field, and for wire types that no message here uses. */
  constructor(bytes: Buffer) {
    let at = 0;
    const readVarint = (): bigint => {
      let value = 0n;
      for (let shift = 0n; ; shift += 7n) {
        const byte = bytes.readUInt8(at++);
        value |= BigInt(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
      }
    };
    while (at < bytes.length) {
      const tag = Number(readVarint());
      if ((tag & 7) === 0) {
        this.#add(tag >> 3, readVarint());
      } else if ((tag & 7) === 2) {
        const length = Number(readVarint());
        if (at + length > bytes.length) throw new RangeError("A field is longer than its message.");
        this.#add(tag >> 3, bytes.subarray(at, at + length));
        at += length;
      } else if ((tag & 7) === 1) {
        this.#add(tag >> 3, bytes.readBigUInt64LE(at));
        at += 8;
      } else if ((tag & 7) === 5) {
        this.#add(tag >> 3, BigInt(bytes.readUInt32LE(at)));
        at += 4;
      } else {
        throw new RangeError(`Field ${tag >> 3} has the wire type ${tag & 7}.`);
      }
    }
  }

  has(number: number): boolean {
    return this.#fields.has(number);
  }

  /** An int64, 0 where absent. */
  integer(number: number): bigint {
    const value = this.#fields.get(number)?.at(-1) ?? 0n;
    if (typeof value !== "bigint") throw new TypeError(`Field ${number} is not a number.`);
    return BigInt.asIntN(64, value);
  }

  /** All values of a field of varints below 128, packed or not. */
  smallNumbers(number: number): number[] {
    const values = this.#fields.get(number) ?? [];
    return values.flatMap((value) => (typeof value === "bigint" ? [Number(value)] : [...value]));
  }

  number(number: number): number {
    return Number(this.integer(number));
  }

  bytes(number: number): Buffer {
    return this.all(number).at(-1) ?? Buffer.of();
  }

  text(number: number): string {
    return this.bytes(number).toString("utf8");
  }

  message(number: number): Message | undefined {
    const bytes = this.all(number).at(-1);
    return bytes === undefined ? undefined : new Message(bytes);
  }

  messages(number: number): Message[] {
    return this.all(number).map((bytes) => new Message(bytes));
  }

  /** All values of a length-delimited field. */
  all(number: number): Buffer[] {
    return (this.#fields.get(number) ?? []).map((value) => {
      if (typeof value === "bigint") throw new TypeError(`Field ${number} is a number.`);
      return value;
    });
  }

  #add(number: number, value: bigint | Buffer): void {
    const values = this.#fields.get(number);
    if (values === undefined) this.#fields.set(number, [value]);
    else values.push(value);
  }
}
