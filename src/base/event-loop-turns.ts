import type { Clock, Timer } from "./clock.ts";

/** Maximum time that all users of `EventLoopTurns` together may hold the event loop per turn, in milliseconds. */
export const turnMs = 2;

/** Maximum time that one worker runs before the next one is called, in milliseconds. */
export const quantumMs = 0.5;

/**
 * Work that grows with data, split into steps: what a generator does between two yields. A step should take well below
 * a millisecond.
 */
export type TimeSlicedWork<T> = Generator<void, T, void>;

/** Work of one step, for what waits for its turn and can't be split. */
// biome-ignore lint/correctness/useYield: it is one step.
export function* oneStep<T>(work: () => T): TimeSlicedWork<T> {
  return work();
}

/** A consumer of time slices. */
export interface TurnWorker {
  /**
   * Works until the clock reads `until` or nothing is left, but does at least one step. Returns whether there is more
   * to do.
   */
  work(until: number): boolean;
}

/**
 * The time budget of one event loop, shared by the time-sliced work on it, so that long work never blocks the loop for
 * longer than `turnMs` plus one step. If each queue had its own slice, the loop would be blocked for as many slices as
 * there are busy queues. Here all of them together get `turnMs` per turn, in quanta of `quantumMs`, round-robin.
 *
 * Its users:
 * - `Turns` (turns.ts): work that waits, fair by caller: scans, selectors, the opening of watches, watchers that catch up,
 *   pieces of large responses of etcd's API.
 * - `StoreWatchCall`: the past that the watches of a stream read from the embedded store.
 * - `runInTimeSlices`: work without a result and without an owner, such as maintenance.
 * - `runPaced`: the same, with a time in which it should be done, for which it may take more.
 * - an informer's pipeline and handlers, and the release of ended calls (`CallClosings`), which have queues of their own.
 *
 * Three users have a budget of their own, so that this work can't delay them: the Dispatcher (4 ms), new calls
 * (`CallArrivals`, 2 ms), and the streams of connections that end (`EndingConnections`, 128 streams).
 */
export class EventLoopTurns {
  static readonly #byClock = new WeakMap<Clock, EventLoopTurns>();
  readonly #clock: Clock;
  /** Workers that wait, the next one first. */
  readonly #workers = new Set<TurnWorker>();
  #turn: Timer | undefined;
  /** When this turn's slice ends; undefined until it is first used. */
  #until: number | undefined;

  private constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Returns the instance of this clock: users of one clock are on one event loop. */
  static of(clock: Clock): EventLoopTurns {
    let turns = EventLoopTurns.#byClock.get(clock);
    if (turns === undefined) {
      turns = new EventLoopTurns(clock);
      EventLoopTurns.#byClock.set(clock, turns);
    }
    return turns;
  }

  /** When this turn's slice ends, in the clock's milliseconds. The slice begins with its first use in a turn. */
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

  /** Calls the worker in the next turn, and in later ones until it has nothing more to do. Idempotent. */
  schedule(worker: TurnWorker): void {
    this.#workers.add(worker);
    this.#scheduleTurn();
  }

  #scheduleTurn(): void {
    this.#turn ??= this.#clock.setImmediate(this.#nextTurn);
  }

  readonly #nextTurn = (): void => {
    this.#turn = undefined;
    this.#until = undefined;
    if (this.#workers.size === 0) return;
    let now = this.#clock.now();
    const end = now + turnMs;
    this.#until = end;
    this.#scheduleTurn();
    // Each turn makes progress, however slow the clock or a step is.
    do {
      this.#callNext(Math.min(end, now + quantumMs));
      now = this.#clock.now();
    } while (this.#workers.size > 0 && now < end);
  };

  #callNext(until: number): void {
    for (const worker of this.#workers) {
      this.#workers.delete(worker);
      // Also if it throws, so that the rest of its work still runs.
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

/** Runs `steps` in the event loop's time slices, beginning in the rest of this turn's slice. */
export function runInTimeSlices(clock: Clock, steps: TimeSlicedWork<void>): void {
  EventLoopTurns.of(clock).start({
    work: (until) => {
      do if (steps.next().done === true) return false;
      while (clock.now() < until);
      return true;
    },
  });
}

/** Work of a known number of steps. */
export interface PacedWork {
  /** Does one step. Returns whether there are more. */
  step(): boolean;
  /** Number of steps, about. */
  readonly steps: number;
  /** Number of steps done so far. Default: one by each call of `step`. */
  readonly done?: () => number;
  /** Time in which they should be done, in milliseconds. */
  readonly withinMs: number;
}

/**
 * Maximum time that paced work may hold the event loop per call while it is behind its pace: this, in milliseconds, or half
 * of the time since the call before, if that is longer, because turns take long or many share the slice.
 */
const maxBehindMs = 8;

/**
 * Runs work in the event loop's time slices, as `runInTimeSlices`, and beyond them where it is behind its pace. Time
 * slices alone promise no time: a busy process has long turns, and all work shares a slice. With it the
 * steps are done in time, unless they take more than a third of the process.
 */
export function runPaced(clock: Clock, { step, steps, done, withinMs }: PacedWork): void {
  const start = clock.now();
  let calls = 0;
  let lastEnd = start;
  const isBehind = (now: number): boolean => (done?.() ?? calls) * withinMs < steps * (now - start);
  EventLoopTurns.of(clock).start({
    work: (until) => {
      let now = clock.now();
      const end = now + Math.max(maxBehindMs, (now - lastEnd) / 2);
      do {
        calls++;
        if (!step()) return false;
        now = clock.now();
      } while (now < until || (now < end && isBehind(now)));
      lastEnd = now;
      return true;
    },
  });
}
