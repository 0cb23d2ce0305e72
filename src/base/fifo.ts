/**
 * A queue with access by position. Amortized cost of `shift` is constant: the places of removed items are freed
 * together once they are more than half.
 *
 * Most queues have one item at most, which is not in the array: of thousands of streams, each array would be further memory
 * that is not in the processor's caches.
 */
export class Fifo<T> {
  #first: T | undefined;
  /** The items behind the first one. */
  #others: (T | undefined)[] = [];
  /** Number of removed items at the front of the others whose places are not freed yet. */
  #taken = 0;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** The item at `position` from the front; undefined beyond either end. */
  at(position: number): T | undefined {
    if (position === 0) return this.#first;
    const isInside = position > 0 && position < this.#length;
    return isInside ? this.#others[this.#taken + position - 1] : undefined;
  }

  push(item: T): void {
    if (this.#length === 0) this.#first = item;
    else this.#others.push(item);
    this.#length++;
  }

  shift(): T | undefined {
    if (this.#length === 0) return undefined;
    const first = this.#first;
    this.#length--;
    this.#first = this.#length === 0 ? undefined : this.#takeOther();
    return first;
  }

  /** Takes the last item. */
  pop(): T | undefined {
    if (this.#length === 0) return undefined;
    this.#length--;
    if (this.#length > 0) return this.#others.pop();
    const first = this.#first;
    this.#first = undefined;
    return first;
  }

  #takeOther(): T | undefined {
    // An array emptied by `pop` keeps its memory for the next item.
    if (this.#others.length === 1) return this.#others.pop();
    const first = this.#others[this.#taken];
    this.#others[this.#taken++] = undefined;
    if (this.#taken * 2 > this.#others.length) {
      this.#others = this.#others.slice(this.#taken);
      this.#taken = 0;
    }
    return first;
  }
}
