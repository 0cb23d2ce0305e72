import type { Clock } from "./clock.ts";

/** How long all time-sliced work together may hold the event loop in one turn, in milliseconds. */
export const turnMs = 2;

/** How long one worker may go on before the next one is called, in milliseconds. */
export const quantumMs = 0.5;

/** Has work that is done in time slices. */
export interface TurnWorker {
  /**
   * Works until the clock says `until` or nothing is left, and for one step in any case. Returns whether there is
   * more to do.
   */
  work(until: number): boolean;
}

/**
 * The turns of one event loop, shared by everything that works in time slices on it. Each queue with a slice of its
 * own would hold the loop for as many slices as there are busy queues; here all of them together get `turnMs`, in
 * quanta of `quantumMs`, one worker after the other.
 */
export class EventLoopTurns {
  static readonly #byClock = new WeakMap<Clock, EventLoopTurns>();
  readonly #clock: Clock;
  /** Those that wait. The one whose quantum is next comes first. */
  readonly #workers = new Set<TurnWorker>();
  #isScheduled = false;
  /** When this turn's slice ends; undefined until it is first used. */
  #until: number | undefined;

  private constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The same for all who have the same clock, as they are on the same event loop. */
  static of(clock: Clock): EventLoopTurns {
    let turns = EventLoopTurns.#byClock.get(clock);
    if (turns === undefined) {
      turns = new EventLoopTurns(clock);
      EventLoopTurns.#byClock.set(clock, turns);
    }
    return turns;
  }

  /** When this turn's slice ends, by the clock. The slice begins with the first use in a turn. */
  get sliceEnd(): number {
    if (this.#until === undefined) {
      this.#until = this.#clock.now() + turnMs;
      this.#scheduleTurn();
    }
    return this.#until;
  }

  /** Whether this turn's slice is over. */
  get isOver(): boolean {
    return this.#clock.now() >= this.sliceEnd;
  }

  /** Starts the worker in the rest of this turn's slice, and schedules it if it has more to do then. */
  start(worker: TurnWorker): void {
    while (!this.isOver) if (!worker.work(this.sliceEnd)) return;
    this.schedule(worker);
  }

  /** Has the worker called in the next turn, and in those that follow until it has nothing more to do. Idempotent. */
  schedule(worker: TurnWorker): void {
    this.#workers.add(worker);
    this.#scheduleTurn();
  }

  #scheduleTurn(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#isScheduled = false;
    this.#until = undefined;
    if (this.#workers.size === 0) return;
    let now = this.#clock.now();
    const end = now + turnMs;
    this.#until = end;
    this.#scheduleTurn();
    // However slow the clock or a step is, each turn makes progress.
    do {
      this.#callNext(Math.min(end, now + quantumMs));
      now = this.#clock.now();
    } while (this.#workers.size > 0 && now < end);
  };

  #callNext(until: number): void {
    for (const worker of this.#workers) {
      this.#workers.delete(worker);
      // Also if it throws: what is left of its work must not wait for ever.
      let hasMore = true;
      try {
        hasMore = worker.work(until);
      } finally {
        if (hasMore) this.schedule(worker);
      }
      return;
    }
  }
}
