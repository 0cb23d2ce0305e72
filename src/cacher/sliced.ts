import type { Clock } from "../clock.ts";

/** For how long work may go on before the event loop gets its turn, in milliseconds. */
export const sliceMs = 4;

/** Work in steps: what a generator does between two yields. */
export type Steps = Generator<void, void, void>;

/**
 * Works through `steps` in slices, of which the first is now: whenever one has taken long enough the
 * event loop gets a turn.
 */
export function inSlices(clock: Clock, steps: Steps): void {
  const until = clock.now() + sliceMs;
  while (steps.next().done !== true) {
    if (clock.now() < until) continue;
    clock.setImmediate(() => inSlices(clock, steps));
    return;
  }
}

/** Someone who reads, and may have to wait until it is their turn. */
export interface Pokable {
  /** There may be something now. */
  poke(): void;
}

/**
 * What is done for those who are behind: work, one after another, and readers, who are poked to help
 * themselves. All together take no longer than a slice in each turn of the event loop. So however many come
 * at once, and however much there is to do for each, others get their turn, and of half-done work there is
 * only one. Turns belong to work and to readers by turns, so that neither waits for all of the other.
 */
export class SlicedQueue {
  readonly #clock: Clock;
  readonly #queue: Steps[] = [];
  readonly #readers = new Set<Pokable>();
  /** Whether this turn is the readers', and work only gets what they leave of it. */
  #isReaders = false;
  #isWorking = false;
  /** Whether nobody has begun anything in the step that is being worked on. */
  #isFirst = false;
  /** When this turn's slice ends; undefined while nothing has been done in this turn. */
  #until: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Works through `steps` when all before them are done, which may be right now. */
  add(steps: Steps): void {
    const mayBegin = !this.#isWorking && !this.#isBusy;
    this.#queue.push(steps);
    if (!mayBegin) return;
    const end = this.#sliceEnd;
    while (this.#isBusy && this.#clock.now() < end) this.#step();
  }

  /** Whether this turn's slice is over. */
  get isOver(): boolean {
    return this.#clock.now() >= this.#sliceEnd;
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
  awaitTurn(reader: Pokable): void {
    this.#readers.add(reader);
    void this.#sliceEnd;
  }

  /** Forgets all that is still to be done. */
  clear(): void {
    this.#queue.length = 0;
    this.#readers.clear();
  }

  get #isBusy(): boolean {
    return this.#queue.length > 0 || this.#readers.size > 0;
  }

  /** The slice begins with the first who needs it, and another follows in the next turn. */
  get #sliceEnd(): number {
    if (this.#until === undefined) {
      this.#until = this.#clock.now() + sliceMs;
      this.#clock.setImmediate(this.#nextTurn);
    }
    return this.#until;
  }

  readonly #nextTurn = (): void => {
    this.#until = undefined;
    if (!this.#isBusy) return;
    this.#isReaders = !this.#isReaders;
    // However long it takes to look at the clock, a turn gets on by one step.
    const end = this.#sliceEnd;
    do this.#step();
    while (this.#isBusy && this.#clock.now() < end);
  };

  #step(): void {
    const [steps] = this.#queue;
    const isReaders = this.#readers.size > 0 && (this.#isReaders || steps === undefined);
    let done: boolean | undefined = true;
    this.#isWorking = true;
    this.#isFirst = true;
    try {
      if (isReaders) this.#pokeNext();
      else done = steps?.next().done;
    } finally {
      this.#isWorking = false;
      if (!isReaders && done !== false && this.#queue[0] === steps) this.#queue.shift();
    }
  }

  /** Who has to wait again does so behind all others. */
  #pokeNext(): void {
    for (const reader of this.#readers) {
      this.#readers.delete(reader);
      reader.poke();
      return;
    }
  }
}
