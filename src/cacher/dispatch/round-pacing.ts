/** The part of the time that rounds with few events may take. */
const share = 1 / 2;
/** Time that rounds may take at once after a pause, in milliseconds. */
const burstMs = 50;
/** Maximum wait between two rounds, in milliseconds. */
const maxWaitMs = 20;
/** Average number of events per batch from which on a round has many: its time is that of events, not of messages. */
const manyEvents = 8;

/**
 * Spaces the dispatch rounds where messages, not events, take the time. A round with one event to a thousand connections
 * takes as long as one with five. So at a few hundred events a second rounds without a pause keep the event loop busy,
 * with one or two events in each message. With pauses, in which events accumulate, they take half of the time, and the
 * last connection has an event a few milliseconds later: docs/decisions/response-framing.md has the figures.
 *
 * It is a bucket of time: rounds take from it what they took, and it fills at the rate of their share. Rounds wait while
 * it is empty.
 */
export class RoundPacing {
  /** What rounds may take, in milliseconds, at the moment `#asOf`. */
  #creditMs = burstMs;
  #asOf = -Infinity;

  /** A part of a round has taken `busyMs`, and put as many events and batches into buffers. */
  took(now: number, busyMs: number, events: number, batches: number): void {
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
