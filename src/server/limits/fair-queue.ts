import { Rotation } from "../../base/rotation.ts";

/**
 * A queue that serves callers in rotation, and the connections of each, so that many items of one do not delay those of
 * another.
 */
export class FairQueue<T> {
  /** No queue is empty. */
  readonly #queues = new Rotation<Set<T>>();

  get isEmpty(): boolean {
    return this.#queues.size === 0;
  }

  push(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.add(owner, new Set([item]));
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
    const next = this.#queues.next();
    if (next === undefined) return undefined;
    const [owner, queue] = next;
    const [item] = queue;
    this.#queues.served(owner);
    if (item !== undefined) this.delete(owner, item);
    return item;
  }
}
