/**
 * A queue with access by position. Taking from the front costs, on average, no more than putting at
 * the back: the places taken are given back together once they are the greater part.
 */
export class Fifo<T> {
  #items: (T | undefined)[] = [];
  /** How many places at the front have been taken. */
  #taken = 0;

  get length(): number {
    return this.#items.length - this.#taken;
  }

  /** The item at `position` from the front, or undefined beyond either end. */
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
