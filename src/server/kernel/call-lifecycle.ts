import { status } from "@grpc/grpc-js";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";

/** Listens to the end of a call. */
export interface EndListener {
  /** Called once, with the status code. */
  end(code: status): void;
}

/**
 * The state of a call: open until its deadline, its end, or its client's cancellation. It reports the end once, to the span of
 * the call and to its record for the audit, and releases both.
 */
export class CallLifecycle<Span extends EndListener, Record extends EndListener> {
  /** The span of the call, until that has ended. */
  span: Span | undefined;
  /** The record of the call for the audit, until it is made. */
  record: Record | undefined;
  /** The status code that it has ended with; undefined before its end. */
  code: status | undefined;
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

  /** The server has ended the call with this status code: cancels the deadline. A later code has no effect. */
  end(code: status): void {
    this.#hasEnded = true;
    this.#ended(code);
  }

  /**
   * The client has cancelled or disconnected, or the deadline has passed: calls the listener, once. A call that the server
   * has not ended before has ended with CANCELLED.
   */
  over(): void {
    this.#ended(status.CANCELLED);
    const onOver = this.#onOver;
    this.#onOver = undefined;
    onOver?.();
  }

  #ended(code: status): void {
    this.#timer?.cancel();
    this.code ??= code;
    const { span, record } = this;
    this.span = undefined;
    this.record = undefined;
    span?.end(code);
    record?.end(code);
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

/** A call that has a lifecycle, as its users see it. */
export abstract class CallWithLifecycle<Span extends EndListener, Record extends EndListener> {
  protected abstract readonly lifecycle: CallLifecycle<Span, Record>;

  get span(): Span | undefined {
    return this.lifecycle.span;
  }

  set span(span: Span | undefined) {
    this.lifecycle.span = span;
  }

  get record(): Record | undefined {
    return this.lifecycle.record;
  }

  set record(record: Record | undefined) {
    this.lifecycle.record = record;
  }

  get deadline(): number | undefined {
    return this.lifecycle.deadline;
  }

  onOver(listener: () => void): void {
    this.lifecycle.onOver(listener);
  }
}
