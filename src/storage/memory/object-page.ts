import { estimatedBytes, type StoredObject } from "../../model/object.ts";
import type { ListResult } from "../storage.ts";

/** Default maximum number of objects after a page that are counted one by one; above it their number is unknown. */
const defaultMaxCounted = 10_000;

/** Bounds of a page, as those of a ListRequest. */
export interface PageBounds {
  readonly limit: number;
  readonly maxBytes?: number | undefined;
  /** Maximum number of objects after the page that are counted. Default 10,000. */
  readonly maxCounted?: number | undefined;
}

/** Collects one page of a list, within its bounds, and counts what comes after it. */
export class ObjectPage {
  readonly #bounds: PageBounds;
  readonly #maxCounted: number;
  readonly #items: StoredObject[] = [];
  #bytes = 0;
  #isFull = false;
  #remaining = 0;

  constructor(bounds: PageBounds) {
    this.#bounds = bounds;
    this.#maxCounted = bounds.maxCounted ?? defaultMaxCounted;
  }

  get isFull(): boolean {
    return this.#isFull;
  }

  /** Number of objects in it. */
  get length(): number {
    return this.#items.length;
  }

  /** Adds the next object, if it fits. */
  add(object: StoredObject): void {
    const { limit, maxBytes = 0 } = this.#bounds;
    const bytes = this.#bytes + estimatedBytes(object);
    if (this.#items.length > 0 && maxBytes > 0 && bytes > maxBytes) {
      this.#isFull = true;
      this.#remaining++;
      return;
    }
    this.#items.push(object);
    this.#bytes = bytes;
    this.#isFull = this.#items.length === limit;
  }

  /** Counts one object after the page. Returns whether to continue: counting more would block the event loop. */
  countOne(): boolean {
    this.#remaining++;
    return this.#remaining <= this.#maxCounted;
  }

  /** The page. `hasMore`: whether objects follow it that were not counted. */
  result(revision: number, hasMore: boolean = false): ListResult {
    const isUnknown = hasMore || this.#remaining > this.#maxCounted;
    return {
      revision,
      items: this.#items,
      next: hasMore || this.#remaining > 0 ? this.#items.at(-1)?.key : undefined,
      remaining: isUnknown ? undefined : this.#remaining,
    };
  }
}
