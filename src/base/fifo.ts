/**
 * A queue with access by position. Amortized cost of `shift` is constant: the places of removed items are freed
 * together once they are more than half.
 */
export class Fifo<T> {
  #items: (T | undefined)[] = [];
  /** Number of removed items at the front whose places are not freed yet. */
  #taken = 0;
  /** Most queues are empty when they are asked: then the array is not read. */
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The item at `position` from the front; undefined beyond either end. */
  at(position: number): T | undefined {
    const isInside = position >= 0 && position < this.#length;
    return isInside ? this.#items[this.#taken + position] : undefined;
  }

  push(item: T): void {
    this.#items.push(item);
    this.#length++;
  }

  shift(): T | undefined {
    if (this.#length === 0) return undefined;
    this.#length--;
    // An array emptied by `pop` keeps its memory for the next item.
    if (this.#items.length === 1) return this.#items.pop();
    const first = this.#items[this.#taken];
    this.#items[this.#taken++] = undefined;
    if (this.#taken * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#taken);
      this.#taken = 0;
    }
    return first;
  }
}
