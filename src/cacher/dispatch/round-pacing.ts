/** The part of the time that rounds with few events may take. */
const share = 1 / 2;
/** Time that rounds may take at once after a pause, in milliseconds. */
const burstMs = 50;
/** Maximum wait between two rounds, in milliseconds. */
const maxWaitMs = 10;
/** A round with at least this many events per batch is not counted: events, not messages, take its time. */
const manyEvents = 8;
/** How many revisions have to be expected during a wait. */
const leastExpected = 1 / 2;
/** For how long a revision counts in the rate at which they arrive, on average, in milliseconds. */
const rateMs = 200;

/**
 * Spaces the dispatch rounds where messages, not events, take the time. A round with one event to a thousand connections
 * takes as long as one with five. So at a few hundred events a second rounds without a pause keep the event loop busy,
 * with one or two events in each message. With pauses, in which events accumulate, they take half of the time, and the
 * last connection has an event some milliseconds later: docs/decisions/response-framing.md has the figures. A round never
 * waits if it is not likely that another revision arrives meanwhile.
 *
 * A token bucket of time: a round takes what it lasted, and the bucket fills at the rate of the share. Rounds wait while it
 * is empty. Only the time of the rounds of one resource counts: connections with several streams are written to after it,
 * which takes less.
 */
export class RoundPacing {
  /** What rounds may take, in milliseconds, at the moment `#asOf`. */
  #creditMs = burstMs;
  /** How many revisions arrive per millisecond. */
  #rate = 0;
  #asOf = -Infinity;

  /** A part of a round has taken `busyMs`, for these revisions, and put as many events and batches into buffers. */
  record(now: number, busyMs: number, revisions: number, events: number, batches: number): void {
    this.#advance(now);
    this.#rate += revisions / rateMs;
    if (events >= manyEvents * batches) return;
    this.#creditMs = Math.max(this.#creditMs - busyMs, -maxWaitMs * share);
  }

  /** How long the next round has to wait, in milliseconds; 0: it may begin. */
  waitMs(now: number): number {
    this.#advance(now);
    const waitMs = -this.#creditMs / share;
    return waitMs > 0 && this.#rate * waitMs >= leastExpected ? waitMs : 0;
  }

  #advance(now: number): void {
    const passedMs = now - this.#asOf;
    this.#creditMs = Math.min(burstMs, this.#creditMs + passedMs * share);
    this.#rate *= Math.exp(-passedMs / rateMs);
    this.#asOf = now;
  }
}
