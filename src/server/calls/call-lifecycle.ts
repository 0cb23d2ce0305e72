import type { Clock, Timer } from "../../base/clock.ts";

/** The state of a call: open until its deadline, its end, or its client's cancellation. */
export class CallLifecycle {
  /** When its deadline passes, in the clock's milliseconds; undefined: no deadline. */
  readonly deadline: number | undefined;
  readonly #timer: Timer | undefined;
  #onOver: (() => void) | undefined;
  #hasEnded = false;

  /** Calls `onDeadline` after `timeoutMs` milliseconds; undefined: the call has no deadline. */
  constructor(clock: Clock, timeoutMs: number | undefined, onDeadline: () => void) {
    if (timeoutMs === undefined) return;
    this.deadline = clock.now() + timeoutMs;
    this.#timer = clock.setTimeout(onDeadline, timeoutMs);
  }

  /** Whether the server has ended the call. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Sets the listener for `over`, and replaces the one before. */
  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  /** The server has ended the call: cancels the deadline. */
  end(): void {
    this.#hasEnded = true;
    this.#timer?.cancel();
  }

  /** The client has cancelled or disconnected, or the deadline has passed: calls the listener, once. */
  over(): void {
    this.#timer?.cancel();
    const onOver = this.#onOver;
    this.#onOver = undefined;
    onOver?.();
  }
}
