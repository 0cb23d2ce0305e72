import { context } from "@opentelemetry/api";
import type { Clock } from "../../base/clock.ts";

/** Maximum time that a request to the store delays the next one, in milliseconds. */
const maxWaitMs = 1_000;

/**
 * The store's current revision, with as few requests as correctness permits (single-flight): callers share a response,
 * but a caller never gets the response to a request that was sent before its call, since that would not include a
 * write that completed in between.
 */
export class CurrentRevision {
  readonly #ask: () => Promise<number>;
  readonly #clock: Clock;
  /** The request in flight that the next one waits for. */
  #inFlight: object | undefined;
  /** The request not yet sent, which all callers until then share. */
  #next: Pending | undefined;
  #newest = 0;
  /** Counts the histories, since a response from one is meaningless in the next. */
  #histories = 0;

  constructor(ask: () => Promise<number>, clock: Clock) {
    this.#ask = ask;
    this.#clock = clock;
  }

  /** The newest revision that the store is known to have had. */
  get newest(): number {
    return this.#newest;
  }

  /** Resets `newest`: the store has another history, whose revisions may be lower. */
  forget(): void {
    this.#newest = 0;
    this.#histories++;
  }

  /** Resolves to the store's revision, read after this call. Rejects with the store's error. */
  get(): Promise<number> {
    this.#next ??= new Pending();
    const { promise } = this.#next.response;
    if (this.#inFlight === undefined) this.#sendNext();
    return promise;
  }

  #sendNext(): void {
    const request = this.#next;
    if (request === undefined) return;
    this.#next = undefined;
    this.#inFlight = request;
    const history = this.#histories;
    const timer = this.#clock.setTimeout(() => this.#endTurn(request), maxWaitMs);
    const { resolve, reject } = request.response;
    context
      .with(request.trace, this.#ask)
      .then((revision) => {
        if (history === this.#histories) this.#newest = Math.max(this.#newest, revision);
        resolve(revision);
      }, reject)
      .finally(() => {
        timer.cancel();
        this.#endTurn(request);
      });
  }

  /** Sends the next request, if that one waits for `request`. */
  #endTurn(request: object): void {
    if (this.#inFlight !== request) return;
    this.#inFlight = undefined;
    this.#sendNext();
  }
}

/** A request that callers wait for. */
class Pending {
  readonly response = Promise.withResolvers<number>();
  /** The request is part of the trace of its first caller. */
  readonly trace = context.active();
}
