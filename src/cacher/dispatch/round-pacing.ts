/** The part of the time that rounds with few events may take. */
const share = 1 / 2;
/** Time that rounds may take at once after a pause, in milliseconds. */
const burstMs = 50;
/** Maximum wait between two rounds, in milliseconds. */
const maxWaitMs = 10;
/** A round with at least this many events per batch is not counted: events, not messages, take its time. */
const manyEvents = 8;

/**
 * Spaces the dispatch rounds where messages, not events, take the time. A round with one event to a thousand connections
 * takes as long as one with five. So at a few hundred events a second rounds without a pause keep the event loop busy,
 * with one or two events in each message. With pauses, in which events accumulate, they take half of the time, and the
 * last connection has an event a few milliseconds later: docs/decisions/response-framing.md has the figures.
 *
 * A token bucket of time: a round takes what it lasted, and the bucket fills at the rate of the share. Rounds wait while it
 * is empty. Only the time of the rounds of one resource counts: connections with several streams are written to after it,
 * which takes less.
 */
export class RoundPacing {
  /** What rounds may take, in milliseconds, at the moment `#asOf`. */
  #creditMs = burstMs;
  #asOf = -Infinity;

  /** A part of a round has taken `busyMs`, and put as many events and batches into buffers. */
  record(now: number, busyMs: number, events: number, batches: number): void {
    this.#fill(now);
    if (events >= manyEvents * batches) return;
    this.#creditMs = Math.max(this.#creditMs - busyMs, -maxWaitMs * share);
  }

  /** How long the next round has to wait, in milliseconds; 0: it may begin. */
  waitMs(now: number): number {
    this.#fill(now);
    return this.#creditMs >= 0 ? 0 : -this.#creditMs / share;
  }

  #fill(now: number): void {
    this.#creditMs = Math.min(burstMs, this.#creditMs + (now - this.#asOf) * share);
    this.#asOf = now;
  }
}
