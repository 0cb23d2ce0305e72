/** An item of a DelayHeap. The heap maintains these fields; an item can be in one heap only. */
export abstract class Delayed {
  /** When it is due, in milliseconds by the clock. Undefined meaning if it is not in a heap. */
  due = 0;
  /** Order of insertion, which decides between items that are due at the same time. */
  order = 0;
  /** Position in the heap; -1 if it is not in a heap. */
  position = -1;
}

/** A binary heap of items by due time, in which each item knows its position. */
export class DelayHeap<T extends Delayed> {
  #items: T[] = [];
  #puts = 0;

  get length(): number {
    return this.#items.length;
  }

  /** The item that is due first. */
  get first(): T | undefined {
    return this.#items[0];
  }

  /** Adds `item`. If it is already in the heap, the earlier of both times applies. */
  put(item: T, due: number): void {
    if (item.position !== -1 && item.due <= due) return;
    item.due = due;
    item.order = this.#puts++;
    if (item.position === -1) {
      item.position = this.#items.length;
      this.#items.push(item);
    }
    this.#rise(item);
  }

  /** Removes the item that is due first. */
  shift(): T | undefined {
    const first = this.#items[0];
    const last = this.#items.pop();
    if (first === undefined || last === undefined) return undefined;
    first.position = -1;
    if (first !== last) {
      this.#place(last, 0);
      this.#sink(last);
    }
    return first;
  }

  /** Removes all items, in no particular order. */
  clear(): readonly T[] {
    const items = this.#items;
    this.#items = [];
    for (const item of items) item.position = -1;
    return items;
  }

  #rise(item: T): void {
    while (item.position > 0) {
      const above = this.#items[(item.position - 1) >> 1];
      if (above === undefined || comesBefore(above, item)) return;
      this.#swap(above, item);
    }
  }

  #sink(item: T): void {
    for (;;) {
      const left = this.#items[item.position * 2 + 1];
      const right = this.#items[item.position * 2 + 2];
      if (left === undefined) return;
      const below = right !== undefined && comesBefore(right, left) ? right : left;
      if (comesBefore(item, below)) return;
      this.#swap(item, below);
    }
  }

  /** Swaps `above`, the parent, with `below`. */
  #swap(above: T, below: T): void {
    const top = above.position;
    this.#place(above, below.position);
    this.#place(below, top);
  }

  #place(item: T, position: number): void {
    this.#items[position] = item;
    item.position = position;
  }
}

function comesBefore(a: Delayed, b: Delayed): boolean {
  return a.due < b.due || (a.due === b.due && a.order < b.order);
}
