import type { Clock } from "./clock.ts";
import type { Logger } from "./logger.ts";

/** Interval between lines of the same kind, in milliseconds. */
const repeatMs = 60_000;

/** Maximum number of kinds of one outage that have a line of their own. */
const maxKinds = 16;

/**
 * Logs an outage of what a loop tries to reach: one line when it begins, one a minute while it lasts, and one when it has
 * ended, with the number of failed attempts and the duration. An attempt of another kind, such as one that failed for
 * another reason, has a line at once, the first time.
 */
export class OutageLog {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #kinds = new Set<string>();
  /** When the first attempt failed, in the clock's milliseconds; undefined: there is no outage. */
  #since: number | undefined;
  /** When the last line was written. */
  #loggedAt = 0;
  #attempts = 0;

  constructor(clock: Clock, logger: Logger) {
    this.#clock = clock;
    this.#logger = logger;
  }

  /** An attempt has failed. `fields` say why, and `text` what is done about it. */
  failed(kind: string, fields: object, text: string): void {
    const now = this.#clock.now();
    this.#since ??= now;
    this.#attempts++;
    const isNew = !this.#kinds.has(kind) && this.#kinds.size < maxKinds;
    if (!isNew && now - this.#loggedAt < repeatMs) return;
    this.#kinds.add(kind);
    this.#loggedAt = now;
    this.#logger.warn(this.#attempts === 1 ? fields : { ...fields, ...this.#outage(now) }, text);
  }

  /** An attempt has succeeded. Without effect if none has failed before. */
  ended(text: string): void {
    if (this.#since === undefined) return;
    this.#logger.info(this.#outage(this.#clock.now()), text);
    this.#since = undefined;
    this.#attempts = 0;
    this.#kinds.clear();
  }

  #outage(now: number): { readonly attempts: number; readonly outageMs: number } {
    return { attempts: this.#attempts, outageMs: Math.round(now - (this.#since ?? now)) };
  }
}
