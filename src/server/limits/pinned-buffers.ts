/**
 * Counts the memory that views keep alive. A view of a few bytes keeps its whole buffer alive, and a buffer with many
 * views counts once.
 */
export class PinnedBuffers {
  readonly #counts = new Map<ArrayBufferLike, number>();
  #bytes = 0;

  /** Size of all buffers, and of what was added beside them. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds views, and `besideBytes` beside their buffers. Returns the argument for `delete`. */
  add(views: readonly Uint8Array[], besideBytes: number): readonly ArrayBufferLike[] {
    const buffers: ArrayBufferLike[] = [];
    let last: ArrayBufferLike | undefined;
    for (const { buffer } of views) {
      // Consecutive views usually have the same buffer.
      if (buffer === last) continue;
      last = buffer;
      buffers.push(buffer);
      const count = this.#counts.get(buffer) ?? 0;
      if (count === 0) this.#bytes += buffer.byteLength;
      this.#counts.set(buffer, count + 1);
    }
    this.#bytes += besideBytes;
    return buffers;
  }

  /** Removes what `add` returned, and the `besideBytes` that it was given. */
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
