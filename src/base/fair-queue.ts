import { type Most, Rotation } from "./rotation.ts";

/**
 * A queue that serves callers in rotation, and the connections of each, so that many items of one do not delay those of
 * another. Its users bound it.
 */
export class FairQueue<T> {
  /** No queue is empty. */
  readonly #queues = new Rotation<Set<T>>();
  #size = 0;

  /** Number of items that wait. */
  get size(): number {
    return this.#size;
  }

  /** Whether an item of the owner waits. */
  has(owner: object): boolean {
    return this.#queues.get(owner) !== undefined;
  }

  /** Adds an item behind those of the owner. No effect if it is one of them. */
  push(owner: object, item: T): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) {
      this.#queues.add(owner, new Set([item]));
      this.#size++;
    } else {
      const { size } = queue;
      this.#size += queue.add(item).size - size;
    }
  }

  clear(): void {
    this.#queues.clear();
    this.#size = 0;
  }

  /** Removes an item that waits. Returns whether it did. */
  delete(owner: object, item: T): boolean {
    const queue = this.#queues.get(owner);
    if (queue?.delete(item) !== true) return false;
    if (queue.size === 0) this.#queues.delete(owner);
    this.#size--;
    return true;
  }

  /** Removes and returns the next owner's first item; undefined if the queue is empty. */
  shift(): T | undefined {
    return this.#take(this.#queues.next())?.[1];
  }

  /** Removes and returns the next item of one group of owners. */
  shiftIn(group: object): readonly [owner: object, item: T] | undefined {
    return this.#take(this.#queues.nextIn(group));
  }

  /** Removes and returns the next item, but passes over groups and owners that may not have a turn now. */
  shiftOf(
    mayGroup: (group: object) => boolean,
    mayOwner: (owner: object) => boolean,
  ): readonly [owner: object, item: T] | undefined {
    return this.#take(this.#queues.nextOf(mayGroup, mayOwner));
  }

  /** The items of the owner that has most, of the group that has most. */
  most(): Most<ReadonlySet<T>> | undefined {
    return this.#queues.most(({ size }) => size);
  }

  #take(
    next: readonly [owner: object, queue: Set<T>] | undefined,
  ): readonly [owner: object, item: T] | undefined {
    if (next === undefined) return undefined;
    const [owner, queue] = next;
    this.#queues.served(owner);
    // The first one.
    for (const item of queue) {
      queue.delete(item);
      if (queue.size === 0) this.#queues.delete(owner);
      this.#size--;
      return [owner, item];
    }
    return undefined;
  }
}
