import type { Clock } from "../../base/clock.ts";

/** How long ago a server received anything from its own source, by its last response that said so. */
export class ReportedStaleness {
  readonly #clock: Clock;
  #reported: { readonly ms: number; readonly at: number } | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Stores what a response said, in milliseconds; undefined: the server follows its source. */
  observe(staleForMs: number | undefined): void {
    this.#reported =
      staleForMs === undefined ? undefined : { ms: staleForMs, at: this.#clock.now() };
  }

  /** In milliseconds, now; undefined: the server followed its source when it said so last. */
  get ms(): number | undefined {
    if (this.#reported === undefined) return undefined;
    const { ms, at } = this.#reported;
    return ms + this.#clock.now() - at;
  }
}
