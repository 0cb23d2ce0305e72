import type { Clock, Timer } from "../../base/clock.ts";
import { runInTimeSlices } from "../../base/time-slice-queue.ts";

/** A stream whose watches may want progress notifications. */
export interface NotifiedStream {
  /** Sends those that are due. */
  notifyProgress(): void;
}

/** Notifies the watches of all streams of their progress, with one timer for all of them. */
export class ProgressNotifier {
  readonly #clock: Clock;
  readonly #intervalMs: number;
  readonly #reach: () => Promise<void>;
  readonly #streams = new Set<NotifiedStream>();
  #timer: Timer | undefined;

  /** `reach` brings the caches to etcd's revision, and never rejects. */
  constructor(clock: Clock, intervalMs: number, reach: () => Promise<void>) {
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
    this.#timer ??= this.#clock.setTimeout(() => void this.#tick(), this.#intervalMs);
  }

  async #tick(): Promise<void> {
    await this.#reach();
    this.#timer = undefined;
    if (this.#streams.size > 0) this.#setTimer();
    runInTimeSlices(this.#clock, this.#notifyAll());
  }

  *#notifyAll(): Generator<void, void, void> {
    for (const stream of this.#streams) {
      stream.notifyProgress();
      yield;
    }
  }
}
