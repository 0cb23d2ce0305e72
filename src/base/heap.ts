/** An item of a heap. */
export interface HeapItem {
  /** For the heap: where the item stands in it; -1: it is in none. Begins as -1. */
  place: number;
}

/**
 * A binary heap whose items know their place, so that one can be deleted or moved anywhere in it: all in logarithmic time.
 * An item is in one heap at most.
 */
export class Heap<T extends HeapItem> {
  #items: T[] = [];
  readonly #precedes: (a: T, b: T) => boolean;

  /** `precedes` says whether `a` stands before `b`. */
  constructor(precedes: (a: T, b: T) => boolean) {
    this.#precedes = precedes;
  }

  get size(): number {
    return this.#items.length;
  }

  /** The item that no other one precedes. */
  get first(): T | undefined {
    return this.#items[0];
  }

  /** Adds an item, which must not be in a heap. */
  add(item: T): void {
    item.place = this.#items.length;
    this.#items.push(item);
    this.#rise(item);
  }

  /** Deletes an item, which must be here. */
  delete(item: T): void {
    const last = this.#items.pop();
    if (last !== undefined && last !== item) {
      this.#put(last, item.place);
      this.moved(last);
    }
    item.place = -1;
  }

  /** Deletes all items, and returns them in no particular order. */
  clear(): readonly T[] {
    const items = this.#items;
    this.#items = [];
    for (const item of items) item.place = -1;
    return items;
  }

  /** What `precedes` compares of the item has changed. It must be here. */
  moved(item: T): void {
    this.#rise(item);
    this.#sink(item);
  }

  /**
   * What `resultOf` returns for the first item, in order, for which that is not undefined. It is asked about few more items
   * than those that stand before that one.
   */
  find<R>(resultOf: (item: T) => R | undefined): R | undefined {
    let found: T | undefined;
    let result: R | undefined;
    const search = (place: number): void => {
      const item = this.#items[place];
      if (item === undefined || (found !== undefined && this.#precedes(found, item))) return;
      const ofItem = resultOf(item);
      if (ofItem === undefined) {
        search(2 * place + 1);
        search(2 * place + 2);
      } else {
        found = item;
        result = ofItem;
      }
    };
    search(0);
    return result;
  }

  #put(item: T, place: number): void {
    this.#items[place] = item;
    item.place = place;
  }

  #rise(item: T): void {
    while (item.place > 0) {
      const { place } = item;
      const above = this.#items[(place - 1) >> 1];
      if (above === undefined || !this.#precedes(item, above)) return;
      this.#put(item, above.place);
      this.#put(above, place);
    }
  }

  #sink(item: T): void {
    for (;;) {
      const { place } = item;
      const left = this.#items[2 * place + 1];
      const right = this.#items[2 * place + 2];
      const below =
        left !== undefined && right !== undefined && this.#precedes(right, left) ? right : left;
      if (below === undefined || !this.#precedes(below, item)) return;
      this.#put(item, below.place);
      this.#put(below, place);
    }
  }
}
