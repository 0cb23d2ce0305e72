import type { Clock } from "./clock.ts";
import { WatchFanoutError } from "./errors.ts";
import { EventLoopTurns, quantumMs, type TurnWorker } from "./event-loop-turns.ts";
import { Rotation } from "./rotation.ts";

/** Default maximum number of waiting and running tasks of all owners together. */
const defaultMaxTasks = 50_000;

/**
 * Work that grows with data, split into steps: what a generator does between two yields. A step should take well below
 * a millisecond.
 */
export type TimeSlicedWork<T> = Generator<void, T, void>;

interface Task {
  /** Does one step. Returns false when the task is done or has failed; its promise is settled then. */
  step(): boolean;
  /** Rejects the promise. No further step is done. */
  refuse(error: Error): void;
}

/**
 * Runs work in time slices, fairly between owners.
 *
 * All tasks, together with all other users of `EventLoopTurns`, hold the event loop for at most `turnMs` per turn, plus
 * one step. Groups of owners (callers) get quanta of `quantumMs` round-robin, and so do the owners of a group (its
 * connections); the tasks of one owner run in order. So a caller that enqueues a thousand scans delays itself, and others
 * by one quantum.
 *
 * Tasks wait until they run or their signal is aborted. Above `maxTasks` the group with the most tasks loses the newest
 * one of its owner with the most, with OVERLOADED; that may be the one that was just enqueued.
 */
export class TimeSliceScheduler implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #maxTasks: number;
  /** The tasks of each owner that has any. */
  readonly #queues = new Rotation<Task[]>();
  #size = 0;
  #refused = 0;
  #isRunning = false;

  constructor(clock: Clock, maxTasks: number = defaultMaxTasks) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
    this.#maxTasks = maxTasks;
  }

  /** Number of unfinished tasks. */
  get size(): number {
    return this.#size;
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
      this.#enqueue(owner, { step, refuse });
    });
  }

  #enqueue(owner: object, task: Task): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.add(owner, [task]);
    else queue.push(task);
    this.#size++;
    if (this.#size > this.#maxTasks) this.#refuseOne();
    // The first task may begin within this turn's slice; one that a step enqueues waits.
    if (this.#size === 1 && !this.#isRunning) this.#turns.start(this);
    else this.#turns.schedule(this);
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    if (this.#size > 0) this.#runOwner(until);
    return this.#size > 0;
  }

  #refuseOne(): void {
    const most = this.#queues.most(({ length }) => length);
    // A task whose step is running can't be refused. It is the first of its owner.
    if (most === undefined || (most.entry.length === 1 && this.#isRunning)) return;
    const task = most.entry.pop();
    if (most.entry.length === 0) this.#queues.delete(most.owner);
    this.#size--;
    this.#refused++;
    task?.refuse(
      new WatchFanoutError(
        "OVERLOADED",
        `This replica has ${this.#maxTasks} scans to do, the maximum. Try another replica, ` +
          "or this one later.",
      ),
    );
  }

  /** Runs one quantum of the next owner. */
  #runOwner(end: number): void {
    const first = this.#queues.next();
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
    this.#queues.served(owner);
    if (queue.length === 0) this.#queues.delete(owner);
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
