/** Size of a buffer, in bytes. */
export const writeBufferBytes = 64 * 1024;

/** Maximum number of buffers that exist at a time, or are kept: 2 MiB. Only connections with TLS use more than one. */
const maxBuffers = 32;

/**
 * Buffers for small messages that are copied to be written together. They are reused once they are written: short-lived
 * ones are memory outside of V8's heap, and let it collect the whole heap every second.
 */
export class WriteBuffers {
  readonly #free: Buffer[] = [];
  /** Number of buffers that are in use or kept. */
  #count = 0;

  /** Returns a buffer of at least `bytes` bytes, of which there are at most `writeBufferBytes`. */
  take(bytes: number): Buffer {
    const free = this.#free.pop();
    if (free !== undefined) return free;
    if (this.#count === maxBuffers) return Buffer.allocUnsafe(bytes);
    this.#count++;
    return Buffer.allocUnsafe(writeBufferBytes);
  }

  /** The buffer has been written. */
  give(buffer: Buffer): void {
    if (buffer.byteLength === writeBufferBytes) this.#free.push(buffer);
  }

  /** The buffer is still being written, and is not given back. */
  leave(buffer: Buffer): void {
    if (buffer.byteLength === writeBufferBytes) this.#count--;
  }
}
