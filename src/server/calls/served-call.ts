import { status } from "@grpc/grpc-js";
import { type Clock, maxTimerMs, type Timer } from "../../base/clock.ts";
import { anonymous, type Identity } from "../../identity/identity.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { CallRecord } from "./audit.ts";
import type { CallSpan } from "./call-span.ts";
import type { ServiceContext } from "./service-context.ts";

/**
 * What the calls of all carriers have in common (HTTP/2, HTTP/1, grpc-js): their caller, and their state, which is open until
 * the deadline, the end, or the client's cancellation. The end is reported once, to the span of the call and to its record for
 * the audit, and both are released.
 */
export abstract class ServedCall {
  abstract readonly connection: object;
  abstract readonly address: string;
  identity: Identity = anonymous;
  traceId: string | undefined;
  via: string | undefined;
  /** The span of the call, until that has ended. */
  span: CallSpan | undefined;
  /** The record of the call for the audit, until it is made. */
  record: CallRecord | undefined;
  /** The status code that it has ended with; undefined before its end. */
  code: status | undefined;
  /** When its deadline passes, in the clock's milliseconds; undefined: no deadline. */
  readonly deadline: number | undefined;
  readonly #callerLimits: ServiceContext["callerLimits"];
  #owner: CallOwner | undefined;
  #deadlineTimer: Timer | undefined;
  #onOver: (() => void) | undefined;
  #onClosed: (() => void) | undefined;
  #hasEnded = false;

  /** `timeoutMs`: after how many milliseconds its deadline passes; undefined: the call has no deadline. */
  constructor(
    { clock, callerLimits }: Pick<ServiceContext, "clock" | "callerLimits">,
    timeoutMs: number | undefined,
  ) {
    this.#callerLimits = callerLimits;
    if (timeoutMs === undefined) return;
    this.deadline = clock.now() + timeoutMs;
    this.#setDeadlineTimer(clock, this.deadline);
  }

  /** Its deadline has passed, and it has not ended before: ends it. */
  protected abstract deadlinePassed(): void;

  /** Whether nothing is held any more of what was sent. */
  protected abstract readonly isClosed: boolean;

  get owner(): CallOwner {
    this.#owner ??= this.#callerLimits.callers.ownerOf(this);
    return this.#owner;
  }

  /** Whether the server has ended the call. */
  protected get hasEnded(): boolean {
    return this.#hasEnded;
  }

  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  onClosed(listener: () => void): void {
    if (this.isClosed) listener();
    else this.#onClosed = listener;
  }

  /** The server has ended the call with this status code: cancels the deadline. A later code has no effect. */
  protected ended(code: status): void {
    this.#hasEnded = true;
    this.#report(code);
  }

  /**
   * The client has cancelled or disconnected, or the deadline has passed: calls the listener, once. A call that the server
   * has not ended before has ended with CANCELLED.
   */
  protected over(): void {
    this.#report(status.CANCELLED);
    const onOver = this.#onOver;
    this.#onOver = undefined;
    onOver?.();
  }

  /** It is over, and nothing is held any more of what was sent. */
  protected closed(): void {
    this.over();
    const onClosed = this.#onClosed;
    this.#onClosed = undefined;
    onClosed?.();
  }

  #report(code: status): void {
    this.#deadlineTimer?.cancel();
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
  #setDeadlineTimer(clock: Clock, deadline: number): void {
    const onTimer = (): void => {
      if (clock.now() < deadline) {
        this.#setDeadlineTimer(clock, deadline);
        return;
      }
      this.deadlinePassed();
      this.over();
    };
    const delayMs = Math.ceil(deadline - clock.now());
    this.#deadlineTimer = clock.setTimeout(onTimer, Math.min(delayMs, maxTimerMs));
  }
}
