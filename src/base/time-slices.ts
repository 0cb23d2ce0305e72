import type { Clock } from "./clock.ts";
import { WatchFanoutError } from "./errors.ts";
import { EventLoopTurns, quantumMs, type TurnWorker } from "./event-loop-turns.ts";

/** How many tasks may be waiting or under way, all owners together, if nothing else is said. */
const defaultMaxTasks = 50_000;

/**
 * Work that grows with data, cut into steps: what a generator does between two yields. A step should take well
 * below a millisecond.
 */
export type TimeSlicedWork<T> = Generator<void, T, void>;

interface Task {
  /** Does one step. Returns false when the task is done or has failed; its promise is settled then. */
  step(): boolean;
  /** Rejects the promise. No step is made afterwards. */
  refuse(error: Error): void;
}

/**
 * Runs work in time slices, shared fairly between owners.
 *
 * All tasks, together with all else that shares the event loop's turns, hold it for at most `turnMs` in each turn,
 * plus the length of one step. The owners (connections, mostly) take turns of `quantumMs` each, and one owner's tasks
 * run in the order in which they came. So an owner that enqueues a thousand scans delays itself, and others by one
 * quantum.
 *
 * Tasks wait for as long as their signal lets them. Above `maxTasks` the owner that has most of them loses the
 * one that came last, with NOT_READY: that may be the one that has just come.
 */
export class TimeSliceScheduler implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #maxTasks: number;
  /** The tasks of each owner that has any. The owner whose turn it is comes first. */
  readonly #queues = new Map<object, Task[]>();
  #size = 0;
  #refused = 0;
  #isRunning = false;

  constructor(clock: Clock, maxTasks: number = defaultMaxTasks) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
    this.#maxTasks = maxTasks;
  }

  /** How many tasks have not finished. */
  get size(): number {
    return this.#size;
  }

  /** How many tasks were refused, as there were too many. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * Works through `work` and resolves to what it returns; rejects with what it throws. Work that nobody is ahead
   * of begins at once, and if it fits what is left of this turn's slice it is done when this returns. Once
   * `signal` is aborted no further step is made, the work is told to return, and the promise rejects with the
   * signal's reason.
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
        // What it has begun is to be cleaned up. Nothing happens to work that threw.
        work.return(undefined as T);
      };
      this.#enqueue(owner, { step, refuse });
    });
  }

  #enqueue(owner: object, task: Task): void {
    const queue = this.#queues.get(owner);
    if (queue === undefined) this.#queues.set(owner, [task]);
    else queue.push(task);
    this.#size++;
    if (this.#size > this.#maxTasks) this.#refuseOne();
    // The first may begin within this turn's slice; what is called from within a step waits.
    if (this.#size === 1 && !this.#isRunning) this.#turns.start(this);
    else this.#turns.schedule(this);
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    if (this.#size > 0) this.#runOwner(until);
    return this.#size > 0;
  }

  #refuseOne(): void {
    let holder: object | undefined;
    let tasks: Task[] = [];
    for (const [owner, queue] of this.#queues) {
      if (queue.length > tasks.length) [holder, tasks] = [owner, queue];
    }
    // What is under way in this very moment can't be refused. It is the first of its owner.
    if (holder === undefined || (tasks.length === 1 && this.#isRunning)) return;
    const task = tasks.pop();
    if (tasks.length === 0) this.#queues.delete(holder);
    this.#size--;
    this.#refused++;
    task?.refuse(
      new WatchFanoutError(
        "NOT_READY",
        `This replica has ${this.#maxTasks} scans to do, which is all that it takes on. Try another replica, ` +
          "or this one soon.",
      ),
    );
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

/**
 * Work whose result several tasks wait for. Each of them advances it on its own owner's time: it is done once, and
 * nobody waits behind the queue of whoever came first.
 */
export class SharedWork<T> {
  readonly #work: TimeSlicedWork<T>;
  readonly #onUnused: () => void;
  #users = 0;
  #outcome: { readonly value: T } | { readonly error: unknown } | undefined;

  /** `onUnused` is called when all who joined have its result or have given up. */
  constructor(work: TimeSlicedWork<T>, onUnused: () => void) {
    this.#work = work;
    this.#onUnused = onUnused;
  }

  /** Takes part until there is a result, and returns that or throws what the work threw. */
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
