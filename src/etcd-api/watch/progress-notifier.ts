import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";

/** A stream whose watches may want progress notifications. */
export interface NotifiedStream {
  /** Sends those that are due, of revisions that are not lower than `floor`. */
  notifyProgress(floor: number): void;
}

/** Notifies the watches of all streams of their progress, with one timer for all of them. */
export class ProgressNotifier {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #reach: () => Promise<number>;
  readonly #streams = new Set<NotifiedStream>();
  /** The timer of the next tick; undefined during a tick, and without streams. */
  #timer: Timer | undefined;
  #isTicking = false;

  /**
   * `reach` brings the caches to etcd's revision, and resolves to the lowest revision that may be reported then. It never
   * rejects.
   */
  constructor(clock: Clock, intervalMs: number, reach: () => Promise<number>) {
    this.#clock = clock;
    this.#intervalMs = intervalMs;
    this.#reach = reach;
  }

  /** Includes the stream until `delete`. */
  add(stream: NotifiedStream): void {
    this.#streams.add(stream);
    this.#setTimer();
  }

  /** Idempotent. */
  delete(stream: NotifiedStream): void {
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.close();
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  #setTimer(): void {
    if (!this.#isTicking) {
      this.#timer ??= this.#clock.setTimeout(() => void this.#tick(), this.#intervalMs);
    }
  }

  async #tick(): Promise<void> {
    this.#timer = undefined;
    this.#isTicking = true;
    const floor = await this.#reach();
    this.#isTicking = false;
    if (this.#streams.size > 0) this.#setTimer();
    runInTimeSlices(this.#clock, this.#notifyAll(floor));
  }

  *#notifyAll(floor: number): Generator<void, void, void> {
    for (const stream of this.#streams) {
      stream.notifyProgress(floor);
      yield;
    }
  }
}
