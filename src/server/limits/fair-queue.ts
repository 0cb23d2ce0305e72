/** A queue that serves owners in rotation, so that many items of one owner do not delay those of another. */
export class FairQueue<T> {
  /** The first owner is served next. No queue is empty. */
  readonly #queues = new Map<object, Set<T>>();

  get isEmpty(): boolean {
    return this.#queues.size === 0;
  }

  push(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, new Set([item]));
    else queue.add(item);
  }

  /** Removes an item that waits. Idempotent. */
  delete(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    queue?.delete(item);
    if (queue?.size === 0) this.#queues.delete(owner);
  }

  /** Removes and returns the next owner's first item; undefined if the queue is empty. */
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
