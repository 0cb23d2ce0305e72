import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { Heap, type HeapItem } from "../../base/heap.ts";

/** An item of a `DelayingQueue`, which maintains these fields. An item can be in one queue only. */
export abstract class Delayed implements HeapItem {
  place = -1;
  /** When it is due, in milliseconds by the clock. */
  due = 0;
  /** Order of insertion, which decides between items that are due at the same time. */
  order = 0;
}

function isDueBefore(a: Delayed, b: Delayed): boolean {
  return a.due < b.due || (a.due === b.due && a.order < b.order);
}

/** Holds items until they are due, with one timer for all of them. */
export class DelayingQueue<T extends Delayed> {
  readonly #clock: Clock;
  readonly #onDue: (item: T) => void;
  readonly #heap = new Heap<T>(isDueBefore);
  #puts = 0;
  #timer: { readonly due: number; readonly timer: Timer } | undefined;

  /** `onDue` is called with each item that is due, which the queue no longer holds then. */
  constructor(clock: Clock, onDue: (item: T) => void) {
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /** Number of items. */
  get length(): number {
    return this.#heap.size;
  }

  /** Adds `item`, due after `delayMs` milliseconds. If the queue already holds it, the earlier of both times applies. */
  put(item: T, delayMs: number): void {
    const due = this.#clock.now() + delayMs;
    if (item.place >= 0 && item.due <= due) return;
    item.due = due;
    item.order = this.#puts++;
    if (item.place < 0) this.#heap.add(item);
    else this.#heap.moved(item);
    this.#setTimer();
  }

  /** Removes all items, and returns them in no particular order. */
  clear(): readonly T[] {
    const items = this.#heap.clear();
    this.#setTimer();
    return items;
  }

  /** Sets the timer to when the first item is due. */
  #setTimer(): void {
    const { first } = this.#heap;
    if (first?.due === this.#timer?.due) return;
    this.#timer?.timer.cancel();
    this.#timer = undefined;
    if (first === undefined) return;
    // A delay above the maximum of a timer is waited for in several steps.
    const delayMs = Math.min(Math.max(first.due - this.#clock.now(), 0), maxTimerMs);
    const timer = this.#clock.setTimeout(() => this.#takeDue(), delayMs);
    this.#timer = { due: first.due, timer };
  }

  /** A timer may fire slightly early, so possibly no item is due yet. */
  #takeDue(): void {
    this.#timer = undefined;
    const now = this.#clock.now();
    for (let { first } = this.#heap; first !== undefined; { first } = this.#heap) {
      if (first.due > now) break;
      this.#heap.delete(first);
      this.#onDue(first);
    }
    this.#setTimer();
  }
}
