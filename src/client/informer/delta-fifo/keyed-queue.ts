/** A queue of keys with one entry each. A key keeps its position when its entry changes. */
export class KeyedQueue<Entry> {
  /** In queue order, since a Map keeps insertion order. */
  readonly #entries = new Map<string, Entry>();
  /**
   * The front of the queue. Advancing an iterator skips deleted positions at no cost; a new iterator would visit all
   * of them. One that stands still keeps what was deleted since from being garbage, so it is replaced now and then.
   */
  #cursor: Iterator<string> = this.#entries.keys();
  /** Entries deleted since the cursor was made. */
  #deleted = 0;

  /** Number of queued keys. */
  get length(): number {
    return this.#entries.size;
  }

  get(key: string): Entry | undefined {
    return this.#entries.get(key);
  }

  /** The queued keys, from the front. */
  keys(): Iterable<string> {
    return this.#entries.keys();
  }

  entries(): Iterable<Entry> {
    return this.#entries.values();
  }

  /** Adds the key at the end, or replaces its entry. */
  set(key: string, entry: Entry): void {
    this.#entries.set(key, entry);
  }

  delete(key: string): void {
    if (!this.#entries.delete(key) || ++this.#deleted <= this.#entries.size) return;
    this.#resetCursor();
  }

  /** Removes the first key and returns its entry; undefined if the queue is empty. */
  shift(): Entry | undefined {
    let next = this.#cursor.next();
    if (next.done === true) {
      // An iterator that has reached the end once stays there.
      this.#resetCursor();
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

  #resetCursor(): void {
    this.#cursor = this.#entries.keys();
    this.#deleted = 0;
  }
}
