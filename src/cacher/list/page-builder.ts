import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { CacheListRequest } from "../request/request.ts";
import type { ListChunk } from "./list-chunk.ts";

/** Puts a page together out of chunks, within the bounds that were asked for. */
export class PageBuilder {
  readonly #limit: number;
  readonly #maxBytes: number;
  readonly items: StoredObject[] = [];
  /** The same items in the arrays that they came in. */
  readonly chunks: (readonly StoredObject[])[] = [];
  #bytes = 0;
  /** How many objects were looked at. */
  scanned = 0;
  /** Where the next page begins after; undefined: nothing follows. */
  next: string | undefined;

  constructor({ limit, maxBytes = 0, startAfter }: CacheListRequest) {
    this.#limit = limit === 0 ? Infinity : limit;
    this.#maxBytes = maxBytes === 0 ? Infinity : maxBytes;
    this.next = startAfter;
  }

  /** Takes the chunk, or of one that does not fit what does; then the page is full, and the result false. */
  add({ items, estimatedBytes: bytes, scanned, last }: ListChunk): boolean {
    const fits =
      this.items.length + items.length <= this.#limit && this.#bytes + bytes <= this.#maxBytes;
    if (fits) {
      this.#take(items, bytes);
      this.scanned += scanned;
      this.next = last;
      return true;
    }
    // Pages that end where chunks do share them.
    if (this.#limit === Infinity && this.items.length > 0) return false;
    const part = this.#fitting(items);
    this.#take(part, 0);
    this.next = part.at(-1)?.key ?? this.next;
    return false;
  }

  #take(items: readonly StoredObject[], bytes: number): void {
    for (const item of items) this.items.push(item);
    if (items.length > 0) this.chunks.push(items);
    this.#bytes += bytes;
  }

  #fitting(items: readonly StoredObject[]): readonly StoredObject[] {
    let bytes = this.#bytes;
    let count = 0;
    for (const item of items) {
      bytes += estimatedBytes(item);
      const isFirst = this.items.length + count === 0;
      const isFull = this.items.length + count >= this.#limit || bytes > this.#maxBytes;
      if (isFull && !isFirst) break;
      count++;
    }
    return items.slice(0, count);
  }
}
