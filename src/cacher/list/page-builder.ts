import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { ListResult } from "../../storage/storage.ts";
import type { CacheListRequest } from "../request/request.ts";
import type { ListChunk } from "./list-chunk.ts";

/** Puts a page together from chunks, within the bounds of the request. */
export class PageBuilder {
  readonly #limit: number;
  readonly #maxBytes: number;
  /** The items in the arrays of their chunks, whose encodings are cached. */
  readonly #chunks: (readonly StoredObject[])[] = [];
  #bytes = 0;
  /** Number of items. */
  size = 0;
  /** Number of objects examined. */
  scanned = 0;
  /** The key that the next page begins after; undefined if this is the last one. */
  next: string | undefined;

  constructor({ limit, maxBytes = 0, startAfter }: CacheListRequest) {
    this.#limit = limit === 0 ? Infinity : limit;
    this.#maxBytes = maxBytes === 0 ? Infinity : maxBytes;
    this.next = startAfter;
  }

  /** Adds the chunk, or as much of it as fits. Returns whether it fits as a whole; if not, the page is full. */
  add({ items, estimatedBytes: bytes, scanned, last }: ListChunk): boolean {
    const fits = this.size + items.length <= this.#limit && this.#bytes + bytes <= this.#maxBytes;
    if (fits) {
      this.#append(items, bytes);
      this.scanned += scanned;
      this.next = last;
      return true;
    }
    // A page that ends where a chunk ends can share whole chunks with other pages.
    if (this.#limit === Infinity && this.size > 0) return false;
    const part = this.#fitting(items);
    this.#append(part, 0);
    this.next = part.at(-1)?.key ?? this.next;
    return false;
  }

  /** The page, of which `remaining` objects follow, if that is known. */
  finish(revision: number, remaining: number | undefined, historyId?: string): ListResult {
    const chunks = this.#chunks;
    let items: readonly StoredObject[] | undefined;
    return {
      ...{ revision, historyId },
      // Most readers take the chunks. A page can have tens of thousands of items.
      get items() {
        items ??= chunks.flat();
        return items;
      },
      chunks,
      next: this.next,
      remaining,
    };
  }

  #append(items: readonly StoredObject[], bytes: number): void {
    if (items.length > 0) this.#chunks.push(items);
    this.size += items.length;
    this.#bytes += bytes;
  }

  #fitting(items: readonly StoredObject[]): readonly StoredObject[] {
    let bytes = this.#bytes;
    let count = 0;
    for (const item of items) {
      bytes += estimatedBytes(item);
      const isFirst = this.size + count === 0;
      const isFull = this.size + count >= this.#limit || bytes > this.#maxBytes;
      if (isFull && !isFirst) break;
      count++;
    }
    return items.slice(0, count);
  }
}
