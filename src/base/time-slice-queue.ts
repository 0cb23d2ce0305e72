import type { Clock } from "./clock.ts";
import { EventLoopTurns, type TurnWorker } from "./event-loop-turns.ts";
import { FairQueue } from "./fair-queue.ts";
import type { TimeSlicedWork } from "./time-slices.ts";

/** Time-sliced work without a result. */
export type Steps = TimeSlicedWork<void>;

/** Runs `steps` in the event loop's time slices, beginning in the rest of this turn's slice. */
export function runInTimeSlices(clock: Clock, steps: Steps): void {
  EventLoopTurns.of(clock).start({
    work: (until) => {
      do if (steps.next().done === true) return false;
      while (clock.now() < until);
      return true;
    },
  });
}

/** A reader that can be made to wait for its turn. */
export interface Notifiable {
  /** Called when it is the reader's turn. */
  notify(): void;
}

/**
 * The catch-up work of unsynced watchers: work, in order, and readers, which are notified in rotation by owner and then
 * help themselves. All of it shares the event loop's time slices with all other time-sliced work. So other work makes
 * progress however much there is to do here, and at most one piece of work is half done. Turns alternate between work
 * and readers, so neither starves the other.
 */
export class TimeSliceQueue implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #queue: Steps[] = [];
  readonly #readers = new FairQueue<Notifiable>();
  /** Whether readers go first in this turn, and work gets what they leave of it. */
  #isReaders = false;
  #isWorking = false;
  /** Whether the current step has not used its right to do one thing yet; see `mayBegin`. */
  #isFirst = false;
  /** When the current quantum ends; undefined outside of one. */
  #until: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
  }

  /** Runs `steps` after all work before it, at once if no work is before it. */
  add(steps: Steps): void {
    const mayBegin = !this.#isWorking && !this.#isBusy;
    this.#queue.push(steps);
    if (mayBegin) this.#workUntil(this.#turns.sliceEnd);
    if (this.#isBusy) this.#turns.schedule(this);
  }

  /** Whether the current quantum is over; outside of one, this turn's slice. */
  get isOver(): boolean {
    return this.#clock.now() >= (this.#until ?? this.#turns.sliceEnd);
  }

  /**
   * Whether the caller may do something now. While others wait, only the reader whose turn it is may: it may do one
   * thing in any case, and more if the slice is not over by then.
   */
  mayBegin(): boolean {
    if (!this.#isWorking && this.#isBusy) return false;
    const isFirst = this.#isWorking && this.#isFirst;
    this.#isFirst = false;
    return isFirst || !this.isOver;
  }

  /** Notifies the reader once, in a later turn. Owners (see `Rotation`) take turns. Default: the reader is its own. */
  enqueue(reader: Notifiable, owner: object = reader): void {
    this.#readers.push(owner, reader);
    this.#turns.schedule(this);
  }

  /** Drops all that waits. */
  clear(): void {
    this.#queue.length = 0;
    this.#readers.clear();
  }

  get #isBusy(): boolean {
    return this.#queue.length > 0 || this.#readers.size > 0;
  }

  /** For `EventLoopTurns`. */
  work(until: number): boolean {
    if (!this.#isBusy) return false;
    this.#isReaders = !this.#isReaders;
    this.#until = until;
    try {
      // A turn makes progress by at least one step, however slow the clock is.
      this.#step();
      this.#workUntil(until);
    } finally {
      this.#until = undefined;
    }
    return this.#isBusy;
  }

  #workUntil(until: number): void {
    while (this.#isBusy && this.#clock.now() < until) this.#step();
  }

  #step(): void {
    const [steps] = this.#queue;
    const isReaders = this.#readers.size > 0 && (this.#isReaders || steps === undefined);
    let done: boolean | undefined = true;
    this.#isWorking = true;
    this.#isFirst = true;
    try {
      // A reader that enqueues itself again goes to the end.
      if (isReaders) this.#readers.shift()?.notify();
      else done = steps?.next().done;
    } finally {
      this.#isWorking = false;
      if (!isReaders && done !== false && this.#queue[0] === steps) this.#queue.shift();
    }
  }
}
