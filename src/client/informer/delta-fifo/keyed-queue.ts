/**
 * A queue of keys, each of which has one place in it and one entry. Whatever happens to a key that waits
 * happens to its entry; its place stays.
 */
export class KeyedQueue<Entry> {
  /** In order, since a Map keeps the order in which its keys came. */
  readonly #entries = new Map<string, Entry>();
  /**
   * Where the front is. Taking one iterator further costs nothing for the places that were given up; a new
   * iterator would go over all of them.
   */
  #cursor: Iterator<string> = this.#entries.keys();

  /** How many keys wait. */
  get length(): number {
    return this.#entries.size;
  }

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** The keys that wait, from the front. */
  keys(): Iterable<string> {
    return this.#entries.keys();
  }

  entries(): Iterable<Entry> {
    return this.#entries.values();
  }

  /** Puts the key at the back, or changes the entry that it has. */
  set(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  /** Takes the entry at the front. */
  shift(): Entry | undefined {
    let next = this.#cursor.next();
    if (next.done === true) {
      // An iterator that has come to the end once stays there.
      this.#cursor = this.#entries.keys();
      next = this.#cursor.next();
      if (next.done === true) return undefined;
    }
    const entry = this.#entries.get(next.value);
    this.#entries.delete(next.value);
    return entry;
  }

  clear(): void {
    this.#entries.clear();
  }
}
