/** The part of the time that rounds with few events may take. */
const share = 1 / 2;
/** Time that rounds may take at once after a pause, in milliseconds. */
const burstMs = 50;
/** Maximum wait between two rounds, in milliseconds. */
const maxWaitMs = 10;
/** A round with at least this many events per batch is not counted: events, not messages, take its time. */
const manyEvents = 8;
/** Minimum number of revisions that a watcher is expected to get during a wait. With fewer a round does not wait. */
const leastExpected = 1 / 2;
/** For how long a revision counts in the rate of revisions, on average, in milliseconds. */
const rateMs = 200;

/** A round, or one of its time slices. */
export interface DispatchedSlice {
  readonly busyMs: number;
  /** Number of revisions in the round. */
  readonly revisions: number;
  /** Events and batches that the slice has put into buffers, counted once per watcher. */
  readonly events: number;
  readonly batches: number;
  /** Number of live watchers. */
  readonly watchers: number;
}

/**
 * Spaces the dispatch rounds where messages, not events, take the time. A round with one event to a thousand connections
 * takes as long as one with five. So at a few hundred events a second rounds without a pause keep the event loop busy,
 * with one or two events in each message. With pauses, in which events accumulate, they take half of the time, and the
 * last connection has an event some milliseconds later: docs/benchmarks.md has the figures.
 *
 * A token bucket of time: a round takes what it lasted, and the bucket fills at the rate of the share. While it is empty,
 * rounds wait if the average watcher is expected to get at least half a revision meanwhile: a wait that puts no further
 * event into the messages only delays them. Only the time of the rounds of one resource counts: connections with several
 * streams are written to after it, which takes less.
 */
export class RoundPacing {
  /** What rounds may take, in milliseconds, at the moment `#asOf`. */
  #creditMs = burstMs;
  /** How many revisions the average watcher gets per millisecond. */
  #rate = 0;
  #asOf = -Infinity;

  record(now: number, { busyMs, revisions, events, batches, watchers }: DispatchedSlice): void {
    this.#advance(now);
    if (batches > 0 && watchers > 0) {
      // The events of one revision are in one message in any case.
      const perBatch = Math.min(revisions, events / batches);
      this.#rate += (perBatch * batches) / watchers / rateMs;
    }
    if (events >= manyEvents * batches) return;
    this.#creditMs = Math.max(this.#creditMs - busyMs, -maxWaitMs * share);
  }

  /** How long the next round has to wait, in milliseconds; 0: it may begin. */
  waitMs(now: number): number {
    this.#advance(now);
    const waitMs = -this.#creditMs / share;
    return this.#rate * waitMs >= leastExpected ? waitMs : 0;
  }

  #advance(now: number): void {
    const passedMs = now - this.#asOf;
    this.#creditMs = Math.min(burstMs, this.#creditMs + passedMs * share);
    this.#rate *= Math.exp(-passedMs / rateMs);
    this.#asOf = now;
  }
}
