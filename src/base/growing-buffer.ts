const nothing = Buffer.alloc(0);

/**
 * Bytes that arrive in chunks, in one buffer. A chunk that finds it empty is used as it is; with a further one all are
 * copied into a buffer of its own, which at least doubles. So chunks cost their own bytes, however small they are.
 */
export class GrowingBuffer {
  /** The held bytes are those from `#start` to `#end`. */
  #room: Buffer = nothing;
  #start = 0;
  #end = 0;

  /** Number of bytes. */
  get length(): number {
    return this.#end - this.#start;
  }

  /** Memory, in bytes: the bytes, and the space allocated for further ones. */
  get memoryBytes(): number {
    return this.#room.length;
  }

  /** A view of the bytes. What is appended later does not change it. */
  get bytes(): Buffer {
    return this.#room.subarray(this.#start, this.#end);
  }

  /** `expected`: the number of bytes that there will be; no more space than that is allocated ahead. */
  append(chunk: Buffer, expected: number): void {
    if (this.length === 0) {
      this.#room = chunk;
      this.#start = 0;
      this.#end = chunk.length;
      return;
    }
    if (this.#end + chunk.length > this.#room.length) {
      const needed = this.length + chunk.length;
      this.reserve(Math.max(needed, Math.min(expected, 2 * this.#room.length)));
    }
    chunk.copy(this.#room, this.#end);
    this.#end += chunk.length;
  }

  /** Drops the first bytes. */
  drop(bytes: number): void {
    this.#start += bytes;
    if (this.#start >= this.#end) this.clear();
  }

  clear(): void {
    this.#room = nothing;
    this.#start = 0;
    this.#end = 0;
  }

  /** Copies the bytes if they keep a far larger buffer alive: a chunk is a view of all that was read from a socket at once. */
  own(): void {
    if (pinsOthers(this.bytes)) this.reserve(this.length);
  }

  /** Moves the bytes to a buffer of this size, which must have room for them. */
  reserve(size: number): void {
    const room = Buffer.allocUnsafeSlow(size);
    const length = this.#room.copy(room, 0, this.#start, this.#end);
    this.#room = room;
    this.#start = 0;
    this.#end = length;
  }
}

/** The bytes, copied if they keep a far larger buffer alive. */
export function ownBytes(bytes: Buffer): Buffer {
  if (!pinsOthers(bytes)) return bytes;
  const copy = Buffer.allocUnsafeSlow(bytes.length);
  bytes.copy(copy);
  return copy;
}

/** Whether the bytes keep a buffer alive that is more than four times as large. */
export function pinsOthers(bytes: Buffer): boolean {
  return bytes.buffer.byteLength > 4 * bytes.length;
}
