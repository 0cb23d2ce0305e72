import type { Clock } from "./clock.ts";

/** How long all work together may hold the event loop in one turn, in milliseconds. */
export const turnMs = 4;

/** How long one owner's work may go on before the next owner's is looked at, in milliseconds. */
const quantumMs = 1;

/**
 * Work that grows with data, cut into steps: what a generator does between two yields. A step should take well
 * below a millisecond.
 */
export type TimeSlicedWork<T> = Generator<void, T, void>;

interface Task {
  /** Does one step. Returns false when the task is done or has failed; its promise is settled then. */
  step(): boolean;
}

/**
 * Runs work in time slices, shared fairly between owners.
 *
 * All tasks together hold the event loop for at most `turnMs` in each turn, plus the length of one step. Within a
 * turn the owners (connections, mostly) take turns of `quantumMs` each, and one owner's tasks run in the order in
 * which they came. So an owner that enqueues a thousand scans delays itself, and others by one quantum.
 */
export class TimeSliceScheduler {
  readonly #clock: Clock;
  /** The tasks of each owner that has any. The owner whose turn it is comes first. */
  readonly #queues = new Map<object, Task[]>();
  #size = 0;
  #isScheduled = false;
  /** When this turn's slice ends; undefined until the first task of a turn runs. */
  #until: number | undefined;
  #isRunning = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** How many tasks have not finished. */
  get size(): number {
    return this.#size;
  }

  /**
   * Works through `work` and resolves to what it returns; rejects with what it throws. Work that nobody is ahead
   * of begins at once, and if it fits what is left of this turn's slice it is done when this returns. Once
   * `signal` is aborted no further step is made and the promise rejects with its reason.
   */
  run<T>(owner: object, work: TimeSlicedWork<T>, signal?: AbortSignal): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      const step = (): boolean => {
        try {
          signal?.throwIfAborted();
          const result = work.next();
          if (result.done !== true) return true;
          resolve(result.value);
        } catch (error) {
          reject(error);
        }
        return false;
      };
      this.#enqueue(owner, { step });
    });
  }

  #enqueue(owner: object, task: Task): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, [task]);
    else queue.push(task);
    this.#size++;
    // Whoever is first may begin within this turn's slice; what is called from within a step waits.
    if (this.#size === 1 && !this.#isRunning) this.#runUntil(this.#endOfSlice());
    else this.#schedule();
  }

  #endOfSlice(): number {
    if (this.#until === undefined) {
      this.#until = this.#clock.now() + turnMs;
      this.#schedule();
    }
    return this.#until;
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    this.#until = undefined;
    if (this.#size === 0) return;
    const end = this.#endOfSlice();
    // However slow the clock or a step is, each turn makes progress.
    do this.#runOwner(end);
    while (this.#size > 0 && this.#clock.now() < end);
  };

  #runUntil(end: number): void {
    while (this.#size > 0 && this.#clock.now() < end) this.#runOwner(end);
  }

  /** One quantum of the owner whose turn it is, who then goes behind all others. */
  #runOwner(end: number): void {
    const [first] = this.#queues;
    if (first === undefined) return;
    const [owner, queue] = first;
    const until = Math.min(end, this.#clock.now() + quantumMs);
    this.#isRunning = true;
    do {
      if (queue[0]?.step() === true) continue;
      queue.shift();
      this.#size--;
    } while (queue.length > 0 && this.#clock.now() < until);
    this.#isRunning = false;
    this.#queues.delete(owner);
    if (queue.length > 0) this.#queues.set(owner, queue);
  }
}
