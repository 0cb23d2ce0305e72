import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";

/** The state of a call: open until its deadline, its end, or its client's cancellation. */
export class CallLifecycle {
  /** When its deadline passes, in the clock's milliseconds; undefined: no deadline. */
  readonly deadline: number | undefined;
  #timer: Timer | undefined;
  #onOver: (() => void) | undefined;
  #hasEnded = false;

  /** Calls `onDeadline` after `timeoutMs` milliseconds; undefined: the call has no deadline. */
  constructor(clock: Clock, timeoutMs: number | undefined, onDeadline: () => void) {
    if (timeoutMs === undefined) return;
    this.deadline = clock.now() + timeoutMs;
    this.#setTimer(clock, this.deadline, onDeadline);
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

  /**
   * The deadline must never pass here before it does at the client, which ends the call with a text of its own. A timer of
   * Node.js drops the fraction of its delay, and may fire a part of a millisecond early.
   */
  #setTimer(clock: Clock, deadline: number, onDeadline: () => void): void {
    const onTimer = (): void => {
      if (clock.now() < deadline) this.#setTimer(clock, deadline, onDeadline);
      else onDeadline();
    };
    const delayMs = Math.ceil(deadline - clock.now());
    this.#timer = clock.setTimeout(onTimer, Math.min(delayMs, maxTimerMs));
  }
}
