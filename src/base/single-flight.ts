import { context } from "@opentelemetry/api";
import type { Clock } from "./clock.ts";

/** Maximum time that the next call waits for the current one, in milliseconds. */
const maxWaitMs = 1_000;

/**
 * Coalesces calls of a function (single-flight). Callers share a call, but only one that begins after they asked: an
 * earlier one says nothing about what has happened since. At most one call waits to begin.
 */
export class SingleFlight<T> {
  readonly #ask: () => Promise<T>;
  readonly #clock: Clock;
  /** The call that the next one waits for. */
  #running: object | undefined;
  /** The call that has not begun yet, which new callers share. */
  #next: Pending<T> | undefined;

  constructor(ask: () => Promise<T>, clock: Clock) {
    this.#ask = ask;
    this.#clock = clock;
  }

  /** Settles as the call does. */
  run(): Promise<T> {
    this.#next ??= new Pending();
    const { promise } = this.#next.response;
    if (this.#running === undefined) this.#begin();
    return promise;
  }

  #begin(): void {
    const call = this.#next;
    if (call === undefined) return;
    this.#next = undefined;
    this.#running = call;
    const timer = this.#clock.setTimeout(() => this.#endTurn(call), maxWaitMs);
    context
      .with(call.trace, this.#ask)
      .then(call.response.resolve, call.response.reject)
      .finally(() => {
        timer.cancel();
        this.#endTurn(call);
      });
  }

  /** Begins the next call, if that one waits for `call`. */
  #endTurn(call: object): void {
    if (this.#running !== call) return;
    this.#running = undefined;
    this.#begin();
  }
}

/** A call that callers wait for. */
class Pending<T> {
  readonly response = Promise.withResolvers<T>();
  /** The call is part of the trace of its first caller. */
  readonly trace = context.active();
}
