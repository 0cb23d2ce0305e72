/** Size of the largest buffers, in bytes. */
export const writeBufferBytes = 64 * 1024;

/** A few sizes, so that a buffer that a socket holds for long has 4 KiB, or at most four times as much as needed. */
const sizes = [4 * 1024, 16 * 1024, writeBufferBytes];

/** Maximum number of buffers of each size that are reused. Only connections with TLS use more than one at a time. */
const maxOfSize = 32;

/** The buffers of one size. */
class SizeClass {
  readonly bytes: number;
  /** Those that are free, or in use and not discarded. */
  readonly #all = new Set<Buffer>();
  readonly #free: Buffer[] = [];

  constructor(bytes: number) {
    this.bytes = bytes;
  }

  acquire(bytes: number): Buffer {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#all.size === maxOfSize) return Buffer.allocUnsafeSlow(bytes);
    const buffer = Buffer.allocUnsafeSlow(this.bytes);
    this.#all.add(buffer);
    return buffer;
  }

  release(buffer: Buffer): void {
    if (this.#all.has(buffer)) this.#free.push(buffer);
  }

  discard(buffer: Buffer): void {
    this.#all.delete(buffer);
  }
}

/**
 * Buffers for small messages that are copied to be written together. They are reused once they are written: short-lived
 * ones are memory outside of V8's heap, and let it collect the whole heap every second.
 */
export class WriteBuffers {
  readonly #classes = sizes.map((bytes) => new SizeClass(bytes));

  /** Returns a buffer of at least `bytes` bytes, of which there are at most `writeBufferBytes`. */
  acquire(bytes: number): Buffer {
    const sizeClass = this.#classes.find((each) => bytes <= each.bytes);
    return sizeClass?.acquire(bytes) ?? Buffer.allocUnsafeSlow(bytes);
  }

  /** The buffer has been written. Call it once. */
  release(buffer: Buffer): void {
    for (const each of this.#classes) each.release(buffer);
  }

  /** The socket holds the buffer for an unknown time. It is not reused. */
  discard(buffer: Buffer): void {
    for (const each of this.#classes) each.discard(buffer);
  }
}
