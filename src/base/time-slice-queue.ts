import type { Clock } from "./clock.ts";
import { EventLoopTurns, type TurnWorker } from "./event-loop-turns.ts";
import type { TimeSlicedWork } from "./time-slices.ts";

/** Time-sliced work without a result. */
export type Steps = TimeSlicedWork<void>;

/** Works through `steps` in the slices of the event loop's turns, and begins in what is left of this turn's. */
export function runInTimeSlices(clock: Clock, steps: Steps): void {
  EventLoopTurns.of(clock).start({
    work: (until) => {
      do if (steps.next().done === true) return false;
      while (clock.now() < until);
      return true;
    },
  });
}

/** Someone who reads, and may have to wait until it is their turn. */
export interface Notifiable {
  /** There may be something now. */
  notify(): void;
}

/**
 * What is done for those who are behind: work, one after another, and readers, who are poked to help
 * themselves. All together share the slices of the event loop's turns with all other time-sliced work. So however many come
 * at once, and however much there is to do for each, others get their turn, and of half-done work there is
 * only one. Turns belong to work and to readers by turns, so that neither waits for all of the other.
 */
export class TimeSliceQueue implements TurnWorker {
  readonly #clock: Clock;
  readonly #turns: EventLoopTurns;
  readonly #queue: Steps[] = [];
  readonly #readers = new Set<Notifiable>();
  /** Whether this turn is the readers', and work only gets what they leave of it. */
  #isReaders = false;
  #isWorking = false;
  /** Whether nobody has begun anything in the step that is being worked on. */
  #isFirst = false;
  /** When the quantum under way ends; undefined outside of one. */
  #until: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#turns = EventLoopTurns.of(clock);
  }

  /** Works through `steps` when all before them are done, which may be right now. */
  add(steps: Steps): void {
    const mayBegin = !this.#isWorking && !this.#isBusy;
    this.#queue.push(steps);
    if (mayBegin) this.#workUntil(this.#turns.sliceEnd);
    if (this.#isBusy) this.#turns.schedule(this);
  }

  /** Whether this turn's slice is over, or the quantum of those who are called in it. */
  get isOver(): boolean {
    return this.#clock.now() >= (this.#until ?? this.#turns.sliceEnd);
  }

  /**
   * Whether who comes now may do something at once. While others wait, only those may whose turn it is: who
   * is poked here may do one thing in any case, and more if the slice is not over then.
   */
  mayBegin(): boolean {
    if (!this.#isWorking && this.#isBusy) return false;
    const isFirst = this.#isWorking && this.#isFirst;
    this.#isFirst = false;
    return isFirst || !this.isOver;
  }

  /** Pokes the reader, once, when it is its turn, which is not now. */
  enqueue(reader: Notifiable): void {
    this.#readers.add(reader);
    this.#turns.schedule(this);
  }

  /** Forgets all that is still to be done. */
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
      // However long it takes to look at the clock, a turn gets on by one step.
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
      if (isReaders) this.#notifyNext();
      else done = steps?.next().done;
    } finally {
      this.#isWorking = false;
      if (!isReaders && done !== false && this.#queue[0] === steps) this.#queue.shift();
    }
  }

  /** Who has to wait again does so behind all others. */
  #notifyNext(): void {
    for (const reader of this.#readers) {
      this.#readers.delete(reader);
      reader.notify();
      return;
    }
  }
}
