/**
 * A queue with access by position. Amortized cost of `shift` is constant: the places of removed items are freed
 * together once they are more than half.
 */
export class Fifo<T> {
  #items: (T | undefined)[] = [];
  /** Number of removed items at the front whose places are not freed yet. */
  #taken = 0;

  get length(): number {
    return this.#items.length - this.#taken;
  }

  /** The item at `position` from the front; undefined beyond either end. */
  at(position: number): T | undefined {
    return position < 0 ? undefined : this.#items[this.#taken + position];
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    if (this.length === 0) return undefined;
    const first = this.#items[this.#taken];
    this.#items[this.#taken++] = undefined;
    if (this.#taken * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#taken);
      this.#taken = 0;
    }
    return first;
  }
}
