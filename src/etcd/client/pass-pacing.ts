import { type Clock, pause } from "../../base/clock.ts";

/** Interval of etcd's passes for unsynced watches, in milliseconds: a watch may wait this long for its first one. */
const passIntervalMs = 100;
/** Minimum time that a pass takes for each revision, in milliseconds. */
const revisionMs = 0.0014;
/** Pause after a pass, in durations of it: passes delay etcd's writes at most a quarter of the time. */
const pauseShare = 3;
const maxPauseMs = 2_000;

/**
 * Spaces the passes in which etcd reads its past for watches: all revisions from the oldest start to the current one, in
 * which it accepts no write. Watches whose pause ends together begin together, so that one pass is for all of them.
 */
export class PassPacing {
  readonly #clock: Clock;
  /** When the next pass may begin, by the clock. */
  #nextAt = -Infinity;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Resolves when a pass may begin, or at once when the signal is aborted. */
  async turn(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const waitMs = this.#nextAt - this.#clock.now();
      if (waitMs <= 0) return;
      await pause(this.#clock, waitMs, signal);
    }
  }

  /**
   * Begins a pass over so many revisions. Returns what ends it, which is idempotent: it has a result, or is not wanted any
   * more.
   */
  begin(revisions: number): () => void {
    const begunAt = this.#clock.now();
    let isOver = false;
    return () => {
      if (isOver) return;
      isOver = true;
      const now = this.#clock.now();
      const passMs = Math.max(now - begunAt - passIntervalMs, revisions * revisionMs);
      this.#nextAt = Math.max(this.#nextAt, now + Math.min(maxPauseMs, pauseShare * passMs));
    };
  }
}
