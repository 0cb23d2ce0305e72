import type { Clock } from "../../base/clock.ts";
import { SingleFlight } from "../../base/single-flight.ts";

/**
 * The store's current revision, with as few requests as correctness permits: callers share a response, but a caller never
 * gets the response to a request that was sent before its call, since that would not include a write that completed in
 * between.
 */
export class CurrentRevision {
  readonly #requests: SingleFlight<number>;
  #newest = 0;
  /** Counts the histories, since a response from one is meaningless in the next. */
  #histories = 0;

  constructor(ask: () => Promise<number>, clock: Clock) {
    this.#requests = new SingleFlight(() => {
      const history = this.#histories;
      return ask().then((revision) => {
        if (history === this.#histories) this.#newest = Math.max(this.#newest, revision);
        return revision;
      });
    }, clock);
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
    return this.#requests.run();
  }
}
