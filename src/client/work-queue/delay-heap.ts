/** What can wait in a DelayHeap, one at a time. The heap keeps its own account of it in these fields. */
export abstract class Delayed {
  /** When its time comes, in milliseconds on the clock. Of what is not in the heap, it says nothing. */
  due = 0;
  /** Of those that are due at once, the one that was put in first comes first. */
  order = 0;
  /** Where in the heap it is; -1: it is not. */
  position = -1;
}

/** Things by when they are due, the first at hand: a binary heap, in which each knows its place. */
export class DelayHeap<T extends Delayed> {
  #items: T[] = [];
  #puts = 0;

  get length(): number {
    return this.#items.length;
  }

  /** What is due first. */
  get first(): T | undefined {
    return this.#items[0];
  }

  /** Puts `item` in. If it is in already, the earlier of both times holds. */
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

  /** Takes out what is due first. */
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

  /** Takes out everything, in no order. */
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

  /** `above` is the parent of `below`, and they change places. */
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
