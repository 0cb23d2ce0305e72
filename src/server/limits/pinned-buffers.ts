/**
 * The memory that views hold alive: a view of a few bytes keeps the whole buffer that it lies in, and a buffer that many
 * views lie in is one.
 */
export class PinnedBuffers {
  readonly #counts = new Map<ArrayBufferLike, number>();
  #bytes = 0;

  /** All buffers that are held, and what was added beside them. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds views, and `eachBytes` for each of them. Returns what `delete` takes. */
  add(views: readonly Uint8Array[], eachBytes: number): readonly ArrayBufferLike[] {
    const buffers: ArrayBufferLike[] = [];
    let last: ArrayBufferLike | undefined;
    for (const { buffer } of views) {
      // Views that follow one another mostly lie in the same.
      if (buffer === last) continue;
      last = buffer;
      buffers.push(buffer);
      const count = this.#counts.get(buffer) ?? 0;
      if (count === 0) this.#bytes += buffer.byteLength;
      this.#counts.set(buffer, count + 1);
    }
    this.#bytes += views.length * eachBytes;
    return buffers;
  }

  /** `besideBytes`: what was added beside the buffers. */
  delete(buffers: readonly ArrayBufferLike[], besideBytes: number): void {
    for (const buffer of buffers) {
      const count = this.#counts.get(buffer) ?? 0;
      if (count > 1) {
        this.#counts.set(buffer, count - 1);
      } else {
        this.#counts.delete(buffer);
        this.#bytes -= buffer.byteLength;
      }
    }
    this.#bytes -= besideBytes;
  }
}
