import type { Clock, Timer } from "../../base/clock.ts";

/** How long a call goes on: until its deadline, its end, or until its client is gone. */
export class CallLifecycle {
  /** When its client gives up, by the clock; undefined: never. */
  readonly deadline: number | undefined;
  readonly #timer: Timer | undefined;
  #onOver: (() => void) | undefined;
  #hasEnded = false;

  /** `timeoutMs` is after how long its client gives up; then `onDeadline` is called. */
  constructor(clock: Clock, timeoutMs: number | undefined, onDeadline: () => void) {
    if (timeoutMs === undefined) return;
    this.deadline = clock.now() + timeoutMs;
    this.#timer = clock.setTimeout(onDeadline, timeoutMs);
  }

  /** Whether the server has said its last word. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** In place of the listener before. */
  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  /** The server has said its last word: there is no deadline any more. */
  end(): void {
    this.#hasEnded = true;
    this.#timer?.cancel();
  }

  /** The client is gone, or its deadline has passed. Told of once. */
  over(): void {
    this.#timer?.cancel();
    const onOver = this.#onOver;
    this.#onOver = undefined;
    onOver?.();
  }
}
