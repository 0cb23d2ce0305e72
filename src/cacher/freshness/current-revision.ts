import type { Clock } from "../../base/clock.ts";

/** How long an answer is waited for before the next question goes out all the same, in milliseconds. */
const maxWaitMs = 1_000;

/**
 * The store's current revision, asked for as seldom as is right: callers share an answer, but never
 * one that was asked for before their call began, as a write that completed in between would be missing
 * from it.
 */
export class CurrentRevision {
  readonly #ask: () => Promise<number>;
  readonly #clock: Clock;
  /** The question that the next one waits for. */
  #asked: object | undefined;
  /** The question not yet asked, which whoever calls now may share. */
  #next: PromiseWithResolvers<number> | undefined;
  #newest = 0;
  /** Counts the histories, as what was asked of one says nothing of the next. */
  #histories = 0;

  constructor(ask: () => Promise<number>, clock: Clock) {
    this.#ask = ask;
    this.#clock = clock;
  }

  /** The newest revision that the store is known to have had. */
  get newest(): number {
    return this.#newest;
  }

  /** The store's history has become another one, in which revisions may be lower. */
  forget(): void {
    this.#newest = 0;
    this.#histories++;
  }

  /** Rejects as the store's own answer does. */
  get(): Promise<number> {
    this.#next ??= Promise.withResolvers<number>();
    const { promise } = this.#next;
    if (this.#asked === undefined) this.#askNext();
    return promise;
  }

  #askNext(): void {
    const upstreamRequest = this.#next;
    if (upstreamRequest === undefined) return;
    this.#next = undefined;
    this.#asked = upstreamRequest;
    const history = this.#histories;
    const timer = this.#clock.setTimeout(() => this.#startNext(upstreamRequest), maxWaitMs);
    this.#ask()
      .then((revision) => {
        if (history === this.#histories) this.#newest = Math.max(this.#newest, revision);
        upstreamRequest.resolve(revision);
      }, upstreamRequest.reject)
      .finally(() => {
        timer.cancel();
        this.#startNext(upstreamRequest);
      });
  }

  /** After this question, if it is the one that is waited for. */
  #startNext(upstreamRequest: object): void {
    if (this.#asked !== upstreamRequest) return;
    this.#asked = undefined;
    this.#askNext();
  }
}
