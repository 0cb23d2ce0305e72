import type { Clock } from "./clock.ts";
import { WatchFanoutError } from "./errors.ts";
import {
  EventLoopTurns,
  quantumMs,
  type TimeSlicedWork,
  type TurnWorker,
} from "./event-loop-turns.ts";
import { FairQueue, type Waiting } from "./fair-queue.ts";

/** Default maximum number of waiting and running tasks of all owners together. */
const defaultMaxTasks = 50_000;

/** What waits for turns of its owner. */
export interface Task {
  /** Does one step, which should take well below a millisecond. Returns whether there is more to do. */
  step(): boolean;
  /** There are too many tasks: no further step is done. Absent: its user bounds their number. */
  refuse?(error: WatchFanoutError): void;
}

/**
 * Work that waits for turns of the event loop, fair by caller.
 *
 * All tasks, together with all other users of `EventLoopTurns`, hold the event loop for at most `turnMs` per turn, plus
 * one step. Groups of owners (callers) get quanta of `quantumMs` round-robin, and so do the owners of a group (its
 * connections); the tasks of one owner run in order. So a caller that enqueues a thousand scans delays itself, and others
 * by one quantum.
 *
 * A task waits until it is done or deleted, or the signal of its promise is aborted. Above `maxTasks` the group with the
 * most tasks loses the newest one of its owner with the most, with OVERLOADED; that may be the one that was just enqueued.
 */
export class Turns implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #maxTasks: number;
  readonly #tasks = new FairQueue<Task>();
  #refused = 0;
  /** The task whose step is running. */
  #running: Task | undefined;
  /** Whether it was added again meanwhile. */
  #isAddedAgain = false;
  /** Whether its step has not used its right to do one thing yet; see `mayBegin`. */
  #isFirst = false;
  /** When the current quantum ends; undefined outside of one. */
  #until: number | undefined;

  constructor(clock: Clock, maxTasks: number = defaultMaxTasks) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
    this.#maxTasks = maxTasks;
  }

  /** Number of unfinished tasks. */
  get size(): number {
    return this.#tasks.size;
  }

  /** Number of tasks that were refused because there were too many. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * Runs `work` and resolves to its result, or rejects with what it throws. Begins at once if no task is before it; if
   * the work fits the rest of this turn's slice, it is done when this returns. When `signal` is aborted, no further
   * step is done, the generator is returned, and the promise rejects with the signal's reason.
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
          refuse(error);
        }
        return false;
      };
      const refuse = (error: unknown): void => {
        reject(error);
        // Lets the work clean up. Has no effect if the work threw.
        work.return(undefined as T);
      };
      this.start(owner, { step, refuse });
    });
  }

  /** As `add`, but begins in the rest of this turn's slice if no task is before it. */
  start(owner: object, task: Task): void {
    if (this.size > 0 || this.#running !== undefined) {
      this.add(owner, task);
    } else {
      this.#tasks.push(owner, task);
      this.#turns.start(this);
    }
  }

  /**
   * Adds a task behind those of its owner, for a later turn. A task waits once, and one that is added within its step goes
   * behind the others.
   */
  add(owner: object, task: Task): void {
    if (task === this.#running) {
      this.#isAddedAgain = true;
    } else {
      this.#tasks.push(owner, task);
      if (this.size > this.#maxTasks) this.#refuseOne(owner, task);
    }
    this.#turns.schedule(this);
  }

  /** Removes a task: no further step is done. Idempotent. */
  delete(owner: object, task: Task): void {
    if (task === this.#running) this.#isAddedAgain = false;
    this.#tasks.delete(owner, task);
  }

  /** Removes all tasks. Promises of `run` stay pending. */
  clear(): void {
    this.#isAddedAgain = false;
    this.#tasks.clear();
  }

  /** Whether the current quantum is over; outside of one, this turn's slice. */
  get isOver(): boolean {
    return this.#clock.now() >= (this.#until ?? this.#turns.sliceEnd);
  }

  /**
   * Whether the caller may do now what it would add a task for. While tasks wait, only the one whose step is running may:
   * one thing in any case, and more if its quantum is not over by then.
   */
  mayBegin(): boolean {
    if (this.#running === undefined && this.size > 0) return false;
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    return isFirst || !this.isOver;
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    do {
      const next = this.#tasks.next();
      if (next === undefined) return false;
      this.#runOwner(next[0], until);
    } while (this.#clock.now() < until);
    return this.size > 0;
  }

  /** Runs one quantum of an owner. */
  #runOwner(owner: object, end: number): void {
    this.#until = Math.min(end, this.#clock.now() + quantumMs);
    try {
      for (;;) {
        const task = this.#tasks.first(owner);
        if (task === undefined) break;
        this.#step(owner, task);
        if (this.isOver) break;
      }
    } finally {
      this.#until = undefined;
      this.#tasks.served(owner);
    }
  }

  #step(owner: object, task: Task): void {
    this.#running = task;
    this.#isFirst = true;
    let hasMore = false;
    try {
      hasMore = task.step();
    } finally {
      this.#running = undefined;
      this.#isFirst = false;
      if (!hasMore) this.#tasks.delete(owner, task);
      if (this.#isAddedAgain) this.#tasks.push(owner, task);
      this.#isAddedAgain = false;
    }
  }

  #refuseOne(...added: Waiting<Task>): void {
    const [owner, task] = this.#tasks.newestOfMost(added);
    // A task whose step is running can't be refused.
    if (task === this.#running) return;
    this.#tasks.delete(owner, task);
    this.#refused++;
    task.refuse?.(
      new WatchFanoutError(
        "OVERLOADED",
        `This replica has ${this.#maxTasks} scans to do, the maximum. Try another replica, ` +
          "or this one later.",
      ),
    );
  }
}

/**
 * Work whose result several tasks wait for. Each task advances it in its own owner's time: the work is done once, and
 * no task waits for the queue of the owner that came first.
 */
export class SharedWork<T> {
  readonly #work: TimeSlicedWork<T>;
  readonly #onUnused: () => void;
  #users = 0;
  #outcome: { readonly value: T } | { readonly error: unknown } | undefined;

  /** `onUnused` is called when every task that joined has its result or has given up. */
  constructor(work: TimeSlicedWork<T>, onUnused: () => void) {
    this.#work = work;
    this.#onUnused = onUnused;
  }

  /** Advances the work until there is a result; returns that, or throws what the work threw. */
  *join(): TimeSlicedWork<T> {
    this.#users++;
    try {
      for (;;) {
        this.#outcome ??= this.#step();
        if (this.#outcome === undefined) yield;
        else if ("value" in this.#outcome) return this.#outcome.value;
        else throw this.#outcome.error;
      }
    } finally {
      this.#users--;
      if (this.#users === 0) this.#onUnused();
    }
  }

  #step(): { readonly value: T } | { readonly error: unknown } | undefined {
    try {
      const { done, value } = this.#work.next();
      return done === true ? { value } : undefined;
    } catch (error) {
      return { error };
    }
  }
}
