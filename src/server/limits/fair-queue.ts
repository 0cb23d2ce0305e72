/** What waits, by owner: owners take turns, so that many items of one hold up no other. */
export class FairQueue<T> {
  /** The next turn is the first one's. None is empty. */
  readonly #queues = new Map<object, Set<T>>();

  get isEmpty(): boolean {
    return this.#queues.size === 0;
  }

  push(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, new Set([item]));
    else queue.add(item);
  }

  /** Takes an item out before its turn. Idempotent. */
  delete(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    queue?.delete(item);
    if (queue?.size === 0) this.#queues.delete(owner);
  }

  /** Takes the next owner's first item. */
  shift(): T | undefined {
    for (const [owner, queue] of this.#queues) {
      this.#queues.delete(owner);
      for (const item of queue) {
        queue.delete(item);
        if (queue.size > 0) this.#queues.set(owner, queue);
        return item;
      }
    }
    return undefined;
  }
}
